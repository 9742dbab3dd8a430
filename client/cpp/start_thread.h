// Starting a thread inside the trainer's process, where a limit on processes, or none of the memory
// for its stack, must not end the trainer.
#ifndef CKPTD_CLIENT_CPP_START_THREAD_H_
#define CKPTD_CLIENT_CPP_START_THREAD_H_

#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace ckptd::inline client {

// ResourceExhausted, with the reason, if the system gives no thread.
template <typename Function>
absl::StatusOr<std::thread> StartThread(Function function) {
  try {
    return std::thread(std::move(function));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system gives this process no thread: ", error.code().message()));
  }
}

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_START_THREAD_H_

// CKPT_CHECK ends the process, in release builds too, when the program itself is wrong: a broken
// invariant is no state to go on from. Never for input, files or messages: those are absl::Status.
#ifndef CKPTD_STORAGE_BASE_CHECK_H_
#define CKPTD_STORAGE_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace ckptd {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition,
                                     const char* why) {
  std::fprintf(stderr, "%s:%d: CKPT_CHECK(%s) failed: %s\n", file, line, condition, why);
  std::abort();
}

}  // namespace ckptd

// `why` names the invariant, as a C string.
#define CKPT_CHECK(condition, why) \
  ((condition) ? void(0) : ::ckptd::CheckFailed(__FILE__, __LINE__, #condition, why))

#endif  // CKPTD_STORAGE_BASE_CHECK_H_

// The one kind of error: absl::Status, its errno kept, its context added once.
//
// What each code means to a caller is in ARCHITECTURE.md ("Errors"). Text: `what failed: on which
// object: why`.
#ifndef CKPTD_STORAGE_BASE_STATUS_H_
#define CKPTD_STORAGE_BASE_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ckptd {

// The status of a failed system call: "<what>: <strerror>", errno kept (see StatusErrno).
// ENOENT NotFound; EEXIST, ENOTEMPTY AlreadyExists; EACCES, EPERM, EROFS PermissionDenied; ENOSPC,
// EDQUOT, ENOMEM, EMFILE, EFBIG ResourceExhausted; EINVAL, ENAMETOOLONG InvalidArgument; ETIMEDOUT
// DeadlineExceeded; everything else (EIO among it) Internal.
absl::Status ErrnoStatus(int error, absl::string_view what);

// The errno that ErrnoStatus() was given, also after WithContext(); 0 if the status came from no
// system call.
int StatusErrno(const absl::Status& status);

// "<context>: <message>", same code and payloads. OK stays OK.
absl::Status WithContext(const absl::Status& status, absl::string_view context);

// The gRPC name of a code: "OK", "RESOURCE_EXHAUSTED" … as in JSON output and log lines.
absl::string_view CodeName(absl::StatusCode code);

// The code of such a name; kUnknown for a name that is none.
absl::StatusCode CodeFromName(absl::string_view name);

}  // namespace ckptd

#define CKPT_CONCAT_INNER_(a, b) a##b
#define CKPT_CONCAT_(a, b) CKPT_CONCAT_INNER_(a, b)

// Returns from the enclosing function if `expression` is an error.
#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

// `lhs = value of expression`, or returns its error. `lhs` may declare a variable.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_IMPL_(CKPT_CONCAT_(status_or_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_IMPL_(result, lhs, expression) \
  auto result = (expression);                           \
  if (!result.ok()) return std::move(result).status();  \
  lhs = *std::move(result)

#endif  // CKPTD_STORAGE_BASE_STATUS_H_

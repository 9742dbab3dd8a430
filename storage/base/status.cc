#include "storage/base/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ckptd {
namespace {

constexpr absl::string_view kErrnoPayload = "ckptd/errno";

struct NamedCode {
  absl::StatusCode code;
  absl::string_view name;
};

constexpr NamedCode kCodes[] = {
    {absl::StatusCode::kOk, "OK"},
    {absl::StatusCode::kCancelled, "CANCELLED"},
    {absl::StatusCode::kUnknown, "UNKNOWN"},
    {absl::StatusCode::kInvalidArgument, "INVALID_ARGUMENT"},
    {absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED"},
    {absl::StatusCode::kNotFound, "NOT_FOUND"},
    {absl::StatusCode::kAlreadyExists, "ALREADY_EXISTS"},
    {absl::StatusCode::kPermissionDenied, "PERMISSION_DENIED"},
    {absl::StatusCode::kUnauthenticated, "UNAUTHENTICATED"},
    {absl::StatusCode::kResourceExhausted, "RESOURCE_EXHAUSTED"},
    {absl::StatusCode::kFailedPrecondition, "FAILED_PRECONDITION"},
    {absl::StatusCode::kAborted, "ABORTED"},
    {absl::StatusCode::kOutOfRange, "OUT_OF_RANGE"},
    {absl::StatusCode::kUnimplemented, "UNIMPLEMENTED"},
    {absl::StatusCode::kInternal, "INTERNAL"},
    {absl::StatusCode::kUnavailable, "UNAVAILABLE"},
    {absl::StatusCode::kDataLoss, "DATA_LOSS"},
};

absl::StatusCode ErrnoCode(int error) {
  switch (error) {
    case ENOENT:
    case ESTALE:
      return absl::StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EINVAL:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status ErrnoStatus(int error, absl::string_view what) {
  absl::Status status(ErrnoCode(error), absl::StrCat(what, ": ", std::strerror(error)));
  status.SetPayload(kErrnoPayload, absl::Cord(absl::StrCat(error)));
  return status;
}

int StatusErrno(const absl::Status& status) {
  absl::optional<absl::Cord> payload = status.GetPayload(kErrnoPayload);
  int error = 0;
  if (payload && absl::SimpleAtoi(std::string(*payload), &error)) return error;
  return 0;
}

absl::Status WithContext(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status result(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  return result;
}

absl::string_view CodeName(absl::StatusCode code) {
  for (const NamedCode& entry : kCodes) {
    if (entry.code == code) return entry.name;
  }
  return "UNKNOWN";
}

absl::StatusCode CodeFromName(absl::string_view name) {
  for (const NamedCode& entry : kCodes) {
    if (entry.name == name) return entry.code;
  }
  return absl::StatusCode::kUnknown;
}

}  // namespace ckptd

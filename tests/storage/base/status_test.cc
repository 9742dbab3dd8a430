#include "storage/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <utility>

namespace ckptd {
namespace {

TEST(Status, ASystemErrorKeepsItsErrnoThroughContexts) {
  absl::Status status = ErrnoStatus(ENOSPC, "write job/a");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "write job/a: No space left on device");
  EXPECT_EQ(StatusErrno(status), ENOSPC);
  absl::Status outer = WithContext(WithContext(status, "rank 3"), "save step-1");
  EXPECT_EQ(outer.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(outer.message(), "save step-1: rank 3: write job/a: No space left on device");
  EXPECT_EQ(StatusErrno(outer), ENOSPC);
}

TEST(Status, WhatCameFromNoSystemCallHasNoErrno) {
  EXPECT_EQ(StatusErrno(absl::OkStatus()), 0);
  EXPECT_EQ(StatusErrno(absl::NotFoundError("x")), 0);
  EXPECT_EQ(WithContext(absl::OkStatus(), "context"), absl::OkStatus());
}

TEST(Status, EveryErrnoHasItsCode) {
  using Code = absl::StatusCode;
  const std::pair<int, Code> cases[] = {
      {ENOENT, Code::kNotFound},
      {EEXIST, Code::kAlreadyExists},
      {ENOTEMPTY, Code::kAlreadyExists},
      {EACCES, Code::kPermissionDenied},
      {EPERM, Code::kPermissionDenied},
      {EROFS, Code::kPermissionDenied},
      {ENOSPC, Code::kResourceExhausted},
      {EDQUOT, Code::kResourceExhausted},
      {ENOMEM, Code::kResourceExhausted},
      {EMFILE, Code::kResourceExhausted},
      {EFBIG, Code::kResourceExhausted},
      {EINVAL, Code::kInvalidArgument},
      {ENAMETOOLONG, Code::kInvalidArgument},
      {ETIMEDOUT, Code::kDeadlineExceeded},
      {EIO, Code::kInternal},
      {EBADF, Code::kInternal},
  };
  for (const auto& [error, code] : cases) {
    EXPECT_EQ(ErrnoStatus(error, "call").code(), code) << error;
  }
}

TEST(Status, CodesHaveTheNamesOfGrpc) {
  EXPECT_EQ(CodeName(absl::StatusCode::kOk), "OK");
  EXPECT_EQ(CodeName(absl::StatusCode::kFailedPrecondition), "FAILED_PRECONDITION");
  for (int code = 0; code <= 16; ++code) {
    auto expected = static_cast<absl::StatusCode>(code);
    EXPECT_EQ(CodeFromName(CodeName(expected)), expected);
  }
  EXPECT_EQ(CodeFromName("NONSENSE"), absl::StatusCode::kUnknown);
}

absl::StatusOr<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return std::make_unique<int>(value / 2);
}

absl::StatusOr<int> Quarter(int value) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> half, Half(value));
  RETURN_IF_ERROR(Half(*half).status());
  return *half / 2;
}

TEST(Status, TheMacrosReturnTheFirstError) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(3).status(), absl::InvalidArgumentError("odd"));
  EXPECT_EQ(Quarter(2).status(), absl::InvalidArgumentError("odd"));
}

}  // namespace
}  // namespace ckptd

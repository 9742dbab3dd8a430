// What storage knows, as messages of ckptd.v1: for the daemon's answers and for tools that read a
// root themselves, so that both say the same. Pure functions.
//
// Text that is not UTF-8 (of a foreign folder, of an error) is escaped: a message must not be lost
// for it.
#ifndef CKPTD_PROTO_CKPTD_CONVERT_H_
#define CKPTD_PROTO_CKPTD_CONVERT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/ckptd/v1/admin.pb.h"
#include "proto/ckptd/v1/checkpoint.pb.h"
#include "proto/ckptd/v1/types.pb.h"
#include "storage/catalog/catalog.h"
#include "storage/catalog/verify.h"
#include "storage/format/records.h"

namespace ckptd {

// The root that something was found on. The label may be empty: unknown.
struct RootName {
  absl::string_view label;
  absl::string_view path;  // Absolute.
};

v1::Failure ToProto(const Failure& failure);
// `code` of another kind than the gRPC names becomes kUnknown.
Failure FromProto(const v1::Failure& failure);

// A good checkpoint.
v1::Checkpoint ToProto(const CheckpointInfo& info, const RootName& root);
// The fragments' files, for Checkpoint::file_list.
void AddFiles(const std::vector<Fragment>& fragments, v1::Checkpoint& checkpoint);

// A checkpoint whose status is not OK.
v1::DamagedCheckpoint ToDamaged(const CheckpointInfo& info, const RootName& root);

// A failed attempt.
v1::Attempt ToProto(const Outcome& outcome);

// An attempt that nobody is known to work on: state "unknown". `written_bytes` counts the sizes of
// its shards, which are whole from the start: how much of them was written nobody knows.
v1::Attempt ToProto(const UnfinishedAttempt& attempt, const RootName& root);

// All tensors and items whose tensor name matches the glob (fnmatch(3); empty: all), in parts of
// about kStreamPartBytes; chunks of one tensor that several nodes wrote come together. Tensors by
// (name, rank), then items by (name, rank); items only if the glob is empty or matches their name.
// At least one part; the first has the checkpoint.
std::vector<v1::DescribeReply> DescribeParts(const std::vector<Fragment>& fragments,
                                             const v1::Checkpoint& checkpoint,
                                             absl::string_view glob);

v1::VerifyReply ToProto(const CheckpointInfo& info, const VerifyResult& result);

}  // namespace ckptd

#endif  // CKPTD_PROTO_CKPTD_CONVERT_H_

// The messages that a client would send for a plan.
#ifndef CKPTD_TESTS_FUZZ_MESSAGES_H_
#define CKPTD_TESTS_FUZZ_MESSAGES_H_

#include "proto/ckptd/v1/types.pb.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

inline void Fill(const Box& box, v1::Box& out) {
  out.mutable_offsets()->Add(box.offsets.begin(), box.offsets.end());
  out.mutable_sizes()->Add(box.sizes.begin(), box.sizes.end());
}

inline void Fill(const TensorEntry& tensor, v1::TensorEntry& out) {
  out.set_name(tensor.name);
  out.set_dtype(static_cast<uint32_t>(tensor.dtype));
  out.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  out.set_rank_local(tensor.rank_local);
  for (const Box& box : tensor.chunks) Fill(box, *out.add_chunks());
  if (tensor.content_crc32c) out.set_content_crc32c(*tensor.content_crc32c);
}

inline void Fill(const ItemEntry& item, v1::ItemEntry& out) {
  out.set_name(item.name);
  out.set_kind(static_cast<v1::ItemKind>(item.kind));
  out.set_rank_local(item.rank_local);
  out.set_bytes(item.bytes);
  out.set_crc32c(item.crc32c);
  out.set_value(item.value);
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_FUZZ_MESSAGES_H_

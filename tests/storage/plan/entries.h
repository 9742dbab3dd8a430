// Entries of plans in one line each.
#ifndef CKPTD_TESTS_STORAGE_PLAN_ENTRIES_H_
#define CKPTD_TESTS_STORAGE_PLAN_ENTRIES_H_

#include <string>
#include <utility>
#include <vector>

#include "storage/base/crc32c.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

// A tensor of which these boxes are held.
inline TensorEntry Tensor(std::string name, DType dtype, Shape shape, std::vector<Box> chunks) {
  TensorEntry tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.chunks = std::move(chunks);
  return tensor;
}

// A tensor that is held whole.
inline TensorEntry Whole(std::string name, DType dtype, Shape shape) {
  return Tensor(std::move(name), dtype, shape, {WholeBox(shape)});
}

inline TensorEntry RankLocal(TensorEntry tensor) {
  tensor.rank_local = true;
  return tensor;
}

inline ItemEntry RankLocal(ItemEntry item) {
  item.rank_local = true;
  return item;
}

// An item, which is staged if it is large.
inline ItemEntry Item(std::string name, const std::string& value,
                      ItemKind kind = ItemKind::kBytes) {
  ItemEntry item;
  item.name = std::move(name);
  item.kind = kind;
  item.bytes = value.size();
  item.crc32c = Crc32c(value);
  if (item.bytes <= kInlineItemBytesMax) item.value = value;
  return item;
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_STORAGE_PLAN_ENTRIES_H_

// What a trainer hands over and takes back: views of its own memory. Values without ownership; the
// memory must stay valid, and of a save unchanged, until the operation that got the view says so.
#ifndef CKPTD_CLIENT_CPP_TENSOR_H_
#define CKPTD_CLIENT_CPP_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "storage/plan/box.h"
#include "storage/plan/dtype.h"
#include "storage/plan/rank_plan.h"

namespace ckptd::inline client {

// A part of a tensor that this rank holds. `data` is the element at the box's lowest corner; it may
// be null only if the box is empty. One stride per dimension, in bytes, zero and negative ones
// allowed; none at all means contiguous, row-major.
struct ChunkView {
  Box box = {};
  const void* data = nullptr;
  std::vector<int64_t> strides_bytes = {};
};

struct TensorView {
  std::string name =
      {};  // UTF-8 without NUL, at most kNameBytesMax; unique among tensors and items.
  DType dtype = DType::kFloat32;
  Shape shape = {};         // Of the whole tensor; empty for a 0-d tensor.
  bool rank_local = false;  // Kept per rank, not joined with the other ranks' tensor of that name.
  std::vector<ChunkView> chunks = {};
};

struct ItemValue {
  std::string name = {};
  ItemKind kind = ItemKind::kJson;
  bool rank_local = false;
  std::string value = {};  // Text of the JSON value, text, or bytes.
};

// All that one rank brings to a checkpoint.
struct State {
  std::vector<TensorView> tensors = {};
  std::vector<ItemValue> items = {};
};

// Where a wanted region goes. `data` as in ChunkView, but written.
struct BoxTarget {
  Box box = {};
  void* data = nullptr;
  std::vector<int64_t> strides_bytes = {};  // No two elements of the box may share an address.
};

// A wanted tensor: several regions of it, each perhaps in a buffer of its own.
struct TensorTarget {
  std::string name = {};
  DType dtype = DType::kFloat32;  // Must be the stored one.
  Shape shape = {};               // Of the whole tensor; must be the stored one.
  bool rank_local = false;        // This rank's own.
  std::vector<BoxTarget> boxes = {};
};

// The tensor held whole and contiguously.
TensorView WholeTensor(std::string name, DType dtype, Shape shape, const void* data);
TensorTarget WholeTarget(std::string name, DType dtype, Shape shape, void* data);

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_TENSOR_H_

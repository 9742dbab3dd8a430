#include "client/cpp/tensor.h"

#include <utility>

namespace ckptd::inline client {

TensorView WholeTensor(std::string name, DType dtype, Shape shape, const void* data) {
  TensorView tensor;
  tensor.chunks.push_back({WholeBox(shape), data, {}});
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  return tensor;
}

TensorTarget WholeTarget(std::string name, DType dtype, Shape shape, void* data) {
  TensorTarget target;
  target.boxes.push_back({WholeBox(shape), data, {}});
  target.name = std::move(name);
  target.dtype = dtype;
  target.shape = std::move(shape);
  return target;
}

}  // namespace ckptd::inline client

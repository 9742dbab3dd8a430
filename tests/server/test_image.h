// The bytes of test tensors: a function of the name (and, rank-local, the rank), so that every copy
// of a tensor is equal and a reader knows what to expect.
#ifndef CKPTD_TESTS_SERVER_TEST_IMAGE_H_
#define CKPTD_TESTS_SERVER_TEST_IMAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "storage/plan/image_layout.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

// `count` bytes of the stream that belongs to `seed`, none of them periodic in any block size.
std::string TestBytes(absl::string_view seed, uint64_t count);

// The row-major bytes of a box of the tensor, as `rank` has them.
std::string BoxBytes(const TensorEntry& tensor, const Box& box, uint32_t rank);

// The image that `rank` stages. Staged items hold TestBytes(name, bytes).
std::string ImageBytes(const RankPlan& plan, const ImageLayout& layout, uint32_t rank);

// What a client reports when it seals this block of the image.
std::vector<uint32_t> UnitChecksums(const ImageLayout& layout, const std::string& image,
                                    uint32_t image_block, uint64_t block_bytes);

// All ordinals of a plan.
std::vector<uint32_t> AllOrdinals(const RankPlan& plan);

}  // namespace ckptd

#endif  // CKPTD_TESTS_SERVER_TEST_IMAGE_H_

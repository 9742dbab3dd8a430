#include "client/cpp/image_source.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "storage/base/crc32c.h"

namespace ckptd {
namespace {

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// A plan of one-dimensional tensors of bytes, where each starts at its own odd address.
class Images {
 public:
  explicit Images(const std::vector<uint64_t>& sizes) {
    std::mt19937_64 random(sizes.size());
    for (uint64_t bytes : sizes) {
      TensorEntry& tensor = plan_.tensors.emplace_back();
      tensor.name = std::to_string(plan_.tensors.size());
      tensor.dtype = DType::kUInt8;
      tensor.shape = {bytes};
      tensor.chunks = {WholeBox(tensor.shape)};
      std::vector<std::byte>& memory = memory_.emplace_back(bytes + 64);
      for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
      views_.emplace_back(memory.data() + plan_.tensors.size() % 64, tensor.shape, 1,
                          std::vector<int64_t>{});
    }
    ordinals_.resize(sizes.size());
    std::iota(ordinals_.begin(), ordinals_.end(), 0);
    layout_ = LayOutImage(plan_, ordinals_);
  }

  const ImageLayout& layout() const { return layout_; }
  const std::vector<StridedView>& views() const { return views_; }

  std::vector<std::byte> Reference() const {
    std::vector<std::byte> image(layout_.image_bytes);
    for (const Section& section : layout_.sections) {
      for (const PlacedPart& part : section.parts) {
        views_[part.ordinal].Gather(
            0,
            std::span(image).subspan(section.image_offset_bytes + part.offset_bytes, part.bytes));
      }
    }
    return image;
  }

 private:
  RankPlan plan_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<StridedView> views_;
  std::vector<uint32_t> ordinals_;
  ImageLayout layout_;
};

void ExpectCopiesLikeTheReference(const Images& images) {
  const std::vector<std::byte> want = images.Reference();
  const size_t rounded = (want.size() + kPieceBytes - 1) / kPieceBytes * kPieceBytes;
  for (StoreKind kind : SupportedStores()) {
    std::unique_ptr<std::byte, FreeMemory> memory(
        static_cast<std::byte*>(std::aligned_alloc(kPieceBytes, rounded + kPieceBytes)));
    std::memset(memory.get(), 0xEE, rounded + kPieceBytes);
    const ImageSource source(images.layout(), images.views(), kind);
    for (const Unit& unit : UnitsOf(images.layout(), 0, images.layout().image_bytes)) {
      const uint32_t crc = source.CopyUnit(unit, memory.get() + unit.image_offset_bytes);
      ASSERT_EQ(crc, Crc32c(std::span(want).subspan(unit.image_offset_bytes, unit.bytes)));
    }
    ASSERT_EQ(std::memcmp(memory.get(), want.data(), want.size()), 0);
    for (size_t i = want.size(); i < rounded; ++i) ASSERT_EQ(memory.get()[i], std::byte{0});
    ASSERT_EQ(memory.get()[rounded], std::byte{0xEE});
  }
}

TEST(ImageSource, CopiesOneTensorOfEverySizeAroundPiecesAndUnits) {
  for (uint64_t bytes :
       {1u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 8192u, 1048575u, 1048576u, 1048577u, 3145731u}) {
    SCOPED_TRACE(bytes);
    ExpectCopiesLikeTheReference(Images({bytes}));
  }
}

TEST(ImageSource, GathersManySmallTensors) {
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < 3000; ++i) sizes.push_back(1 + i * 37 % 1500);
  ExpectCopiesLikeTheReference(Images(sizes));
}

TEST(ImageSource, MixesLargeAndSmallTensorsAtAllAlignments) {
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < 200; ++i) sizes.push_back(i % 3 == 0 ? 20000 + i : 1 + i);
  ExpectCopiesLikeTheReference(Images(sizes));
}

TEST(ImageSource, CopiesStridedViewsAndSecondSections) {
  RankPlan plan;
  TensorEntry& tensor = plan.tensors.emplace_back();
  tensor.name = "t";
  tensor.shape = {700, 500};
  tensor.chunks = {{{0, 0}, {300, 500}}, {{300, 0}, {400, 500}}};
  std::vector<float> columns(700 * 500);
  std::iota(columns.begin(), columns.end(), 0.0f);
  auto* memory = reinterpret_cast<std::byte*>(columns.data());
  const std::vector<int64_t> transposed = {4, 2800};
  const std::vector<StridedView> views = {StridedView(memory, {300, 500}, 4, transposed),
                                          StridedView(memory + 300 * 4, {400, 500}, 4, transposed)};
  const std::vector<uint32_t> ordinals = {0, 1};
  const ImageLayout layout = LayOutImage(plan, ordinals);
  ASSERT_EQ(layout.sections.size(), 2u);
  std::unique_ptr<std::byte, FreeMemory> image(static_cast<std::byte*>(
      std::aligned_alloc(kPieceBytes, (layout.image_bytes / kPieceBytes + 1) * kPieceBytes)));
  const ImageSource source(layout, views);
  for (const Unit& unit : UnitsOf(layout, 0, layout.image_bytes)) {
    const uint32_t crc = source.CopyUnit(unit, image.get() + unit.image_offset_bytes);
    ASSERT_EQ(crc, Crc32c(std::span(image.get() + unit.image_offset_bytes, unit.bytes)));
  }
  for (uint64_t row = 0; row < 700; ++row) {
    const Section& section = layout.sections[row < 300 ? 0 : 1];
    const uint64_t in_chunk = row < 300 ? row : row - 300;
    std::vector<float> got(500);
    std::memcpy(got.data(), image.get() + section.image_offset_bytes + in_chunk * 2000, 2000);
    for (uint64_t column = 0; column < 500; ++column) {
      ASSERT_EQ(got[column], columns[column * 700 + row]);
    }
  }
}

}  // namespace
}  // namespace ckptd

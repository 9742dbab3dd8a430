// Tensors larger than one transfer of the kernel's, and than 32 bits can count.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/session.h"
#include "storage/base/units.h"
#include "tests/support/processes.h"
#include "tests/support/sessions.h"

namespace ckptd {
namespace {

uint64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (uint64_t kib; file >> name >> kib >> unit;) {
    if (name == "MemAvailable:") return kib << 10;
  }
  return 0;
}

uint64_t FreeDisk() {
  struct statvfs info;
  return ::statvfs("/tmp", &info) == 0 ? info.f_bavail * info.f_frsize : 0;
}

// Anonymous memory, so that what nobody touches costs nothing.
class Memory {
 public:
  explicit Memory(uint64_t bytes) : bytes_(bytes) {
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped != MAP_FAILED) data_ = static_cast<char*>(mapped);
  }
  ~Memory() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* data() const { return data_; }
  void Forget() const { ::madvise(data_, bytes_, MADV_DONTNEED); }

 private:
  const uint64_t bytes_;
  char* data_ = nullptr;
};

// What stands at each place: no two pages are alike.
void Fill(char* data, uint64_t bytes) {
  std::vector<uint64_t> page(512);
  for (uint64_t i = 0; i < page.size(); ++i) page[i] = i * 0x9E3779B97F4A7C15u;
  for (uint64_t at = 0; at < bytes; at += 4096) {
    page[0] = at;
    page[511] = ~at;
    std::memcpy(data + at, page.data(), std::min<uint64_t>(4096, bytes - at));
  }
}

// Where the first difference is; `bytes` if there is none.
uint64_t FirstWrong(const char* data, uint64_t begin, uint64_t bytes) {
  std::vector<char> wanted(4096);
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = begin + done;
    const uint64_t page = at / 4096 * 4096;
    const uint64_t length = std::min(bytes - done, page + 4096 - at);
    std::vector<uint64_t> words(512);
    for (uint64_t i = 0; i < words.size(); ++i) words[i] = i * 0x9E3779B97F4A7C15u;
    words[0] = page;
    words[511] = ~page;
    const char* source = reinterpret_cast<const char*>(words.data()) + (at - page);
    if (std::memcmp(data + done, source, length) != 0) return done;
    done += length;
  }
  return bytes;
}

class LargeTensor : public testing::TestWithParam<uint64_t> {};

TEST_P(LargeTensor, StreamsThroughASmallArenaAndLoadsRightAcrossEveryBorder) {
  const uint64_t size = GetParam();
  if (AvailableMemory() < size + 3 * kGiB) GTEST_SKIP() << "needs more memory";
  if (FreeDisk() < size + 2 * kGiB) GTEST_SKIP() << "needs more disk";
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--arena-limit", "256MiB"}});
  ASSERT_TRUE(daemon.ready()) << daemon.Log();
  auto session = OpenSession(site, 0, 1);
  Memory memory(size);
  ASSERT_NE(memory.data(), nullptr);
  Fill(memory.data(), size);
  State state;
  state.tensors = {WholeTensor("w", DType::kUInt8, {size}, memory.data())};
  SaveOptions options;
  uint64_t copied = 0;
  options.on_copied = [&](uint64_t bytes) { copied = std::max(copied, bytes); };
  auto save = session->AsyncSave("large", 1, state, options);
  ASSERT_TRUE(save.ok()) << save.status();
  const absl::Status committed = save->Wait(SaveState::kCommitted, absl::Minutes(5));
  ASSERT_TRUE(committed.ok()) << committed;
  EXPECT_EQ(copied, size);
  EXPECT_EQ(save->report().bytes, size);
  EXPECT_EQ(Ckptctl(site, {"show", "large"}).json["bytes"], size);
  memory.Forget();

  // Slices around each border of a GiB, and the end.
  TensorTarget slices;
  slices.name = "w";
  slices.dtype = DType::kUInt8;
  slices.shape = {size};
  std::vector<std::vector<char>> parts;
  for (uint64_t border = kGiB; border <= size; border += kGiB) {
    const uint64_t begin = border - 12345;
    const uint64_t length = std::min<uint64_t>(54321, size - begin);
    parts.emplace_back(length);
    slices.boxes.push_back({Box{{begin}, {length}}, parts.back().data(), {}});
  }
  parts.emplace_back(1);
  slices.boxes.push_back({Box{{size - 1}, {1}}, parts.back().data(), {}});
  auto report = LoadNow(*session, "large", {slices});
  ASSERT_TRUE(report.ok()) << report.status();
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(FirstWrong(parts[i].data(), slices.boxes[i].box.offsets[0], parts[i].size()),
              parts[i].size())
        << slices.boxes[i].box.offsets[0];
  }

  // And all of it, into what is zero again.
  auto load = session->Load("large", {WholeTarget("w", DType::kUInt8, {size}, memory.data())});
  ASSERT_TRUE(load.ok()) << load.status();
  report = load->Wait(absl::Minutes(5));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(FirstWrong(memory.data(), 0, size), size);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LargeTensor, testing::Values(2 * kGiB + 1, 4 * kGiB + 4097),
                         [](const auto& info) { return absl::StrCat("Bytes", info.param); });

}  // namespace
}  // namespace ckptd

// The main program of a target's test: CORPUS_FOLDER. Runs the target over each file of its corpus
// and over mutations of it, the same ones every time. One case per file.
//
// An input that ends the process is left in the test's undeclared outputs, or in the working
// folder, as "crash-input".
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "storage/base/crc32c.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace ckptd {
namespace {

constexpr int kMutationsPerTarget = 6000;
constexpr int kEditsMax = 4;
constexpr size_t kInputBytesMax = 1 << 16;

struct CorpusFile {
  std::string name;
  std::string bytes;
};

// The input that runs, for Die(). Plain memory: a signal handler reads it.
const std::string* running = nullptr;
std::string* crash_path = nullptr;

void Die(int signal) {
  if (running != nullptr) {
    std::FILE* file = std::fopen(crash_path->c_str(), "w");
    if (file != nullptr) {
      std::fwrite(running->data(), 1, running->size(), file);
      std::fclose(file);
      std::fprintf(stderr, "the input is in %s\n", crash_path->c_str());
    }
  }
  ::signal(signal, SIG_DFL);
  raise(signal);
}

// Changes texts as a fuzzer would. std::mt19937_64 gives the same numbers everywhere; the standard
// distributions do not.
class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<CorpusFile>& corpus) : random_(seed), corpus_(corpus) {}

  std::string Mutate(std::string text) {
    for (size_t edits = 1 + Below(kEditsMax); edits > 0; --edits) Edit(text);
    text.resize(std::min(text.size(), kInputBytesMax));
    return text;
  }

 private:
  size_t Below(size_t end) { return end == 0 ? 0 : random_() % end; }

  void Edit(std::string& text) {
    const size_t at = Below(text.size());
    const size_t length = 1 + Below(std::min<size_t>(text.size() - at, 32));
    switch (Below(10)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
        break;
      case 1:
        if (!text.empty()) text[at] = static_cast<char>(Below(256));
        break;
      case 2:
        text.insert(at, 1, static_cast<char>(Below(256)));
        break;
      case 3:
        text.erase(at, length);
        break;
      case 4:
        text.insert(at, text.substr(Below(text.size()), length));
        break;
      case 5:
        text.resize(at);
        break;
      case 6:
        Overwrite(text, at);
        break;
      case 7: {
        const std::string& other = corpus_[Below(corpus_.size())].bytes;
        text = text.substr(0, at) + other.substr(Below(other.size()));
        break;
      }
      case 8:
        if (!text.empty()) text[at] = text[Below(text.size())];
        break;
      default:
        if (!text.empty()) text[at] = static_cast<char>(text[at] + (Below(2) == 0 ? 1 : -1));
        break;
    }
  }

  // A number at which arithmetic goes wrong, in one of the widths that formats have.
  void Overwrite(std::string& text, size_t at) {
    constexpr uint64_t kNumbers[] = {0,          1,          0x7F,       0x80,       0xFF,
                                     0xFFFF,     0x10000,    0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
                                     1ull << 40, 1ull << 62, INT64_MAX,  1ull << 63, UINT64_MAX};
    const uint64_t number = kNumbers[Below(std::size(kNumbers))];
    for (size_t i = 0, width = size_t{1} << Below(4); i < width && at + i < text.size(); ++i) {
      text[at + i] = static_cast<char>(number >> (8 * i));
    }
  }

  std::mt19937_64 random_;
  const std::vector<CorpusFile>& corpus_;
};

class CorpusCase : public testing::Test {
 public:
  CorpusCase(const std::vector<CorpusFile>& corpus, const CorpusFile& file)
      : corpus_(corpus), file_(file) {}

  void TestBody() override {
    Run(file_.bytes);
    Mutator mutator(Crc32c(file_.name), corpus_);
    const int count = kMutationsPerTarget / static_cast<int>(corpus_.size());
    for (int i = 0; i < count; ++i) Run(mutator.Mutate(file_.bytes));
  }

 private:
  // The copy has no byte to spare, so that a read beyond the end is seen.
  static void Run(const std::string& input) {
    running = &input;
    const std::vector<uint8_t> copy(input.begin(), input.end());
    EXPECT_EQ(LLVMFuzzerTestOneInput(copy.data(), copy.size()), 0);
    running = nullptr;
  }

  const std::vector<CorpusFile>& corpus_;
  const CorpusFile& file_;
};

std::vector<CorpusFile> ReadCorpus(const std::string& folder) {
  std::vector<CorpusFile> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.push_back({entry.path().filename().string(),
                      {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}});
  }
  std::sort(corpus.begin(), corpus.end(),
            [](const CorpusFile& a, const CorpusFile& b) { return a.name < b.name; });
  return corpus;
}

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  crash_path = new std::string(absl::StrCat(outputs == nullptr ? "." : outputs, "/crash-input"));
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM, SIGTERM}) ::signal(signal, Die);
  const std::vector<CorpusFile> corpus = ReadCorpus(argv[1]);
  for (const CorpusFile& file : corpus) {
    testing::RegisterTest(
        "Corpus", file.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
        [&corpus, &file]() -> testing::Test* { return new CorpusCase(corpus, file); });
  }
  const int result = RUN_ALL_TESTS();
  return corpus.empty() ? 1 : result;
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) { return ckptd::Main(argc, argv); }

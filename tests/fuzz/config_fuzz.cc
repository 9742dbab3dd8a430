// The configuration file. The input is its text.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/config.h"
#include "storage/base/check.h"
#include "storage/base/unique_fd.h"
#include "tests/fuzz/properties.h"

namespace ckptd {
namespace {

// A file in memory with a path.
class MemoryFile {
 public:
  explicit MemoryFile(absl::string_view text) : fd_(memfd_create("config", MFD_CLOEXEC)) {
    CKPT_CHECK(fd_.valid(), "a memfd can be made");
    CKPT_CHECK(write(fd_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()),
               "a memfd can be written");
  }
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_.get()); }

 private:
  UniqueFd fd_;
};

absl::StatusOr<Config> Read(const std::string& path) {
  Surroundings surroundings;
  surroundings.uid = 1000;
  surroundings.host_name = "host";
  surroundings.working_folder = "/srv";
  surroundings.variables = {{"HOME", "/srv/home"}};
  return ParseConfig({"--config", path}, surroundings);
}

void CheckLimits(const Config& config) {
  CKPT_CHECK(!config.roots.empty(), "there is a root");
  for (const RootConfig& root : config.roots) {
    CKPT_CHECK(!root.label.empty() && root.path.starts_with('/'), "a root has a place");
  }
  CKPT_CHECK(config.block_bytes >= (1 << 20) && config.block_bytes <= (1 << 30) &&
                 (config.block_bytes & (config.block_bytes - 1)) == 0,
             "blocks have a size that fits");
  CKPT_CHECK(config.max_inflight_attempts > 0, "saves are possible");
  for (absl::Duration timeout :
       {config.join_timeout, config.attempt_timeout, config.admit_timeout, config.peer_lost_timeout,
        config.reattach_timeout, config.root_visible_timeout, config.settle_timeout,
        config.drain_timeout, config.trash_grace}) {
    CKPT_CHECK(timeout >= absl::ZeroDuration() && timeout < absl::InfiniteDuration(),
               "time-outs are finite");
  }
}

void Run(absl::string_view input) {
  // The parser's own stack of messages and tables is deep for each byte.
  const MemoryBound bound(input.size(), 4000);
  const MemoryFile file(input);
  const absl::StatusOr<Config> config = Read(file.path());
  CheckAnswerNames(config.status(), {absl::StatusCode::kInvalidArgument}, file.path());
  if (!config.ok()) return;
  CheckLimits(*config);

  const MemoryFile printed(PrintConfigText(*config));
  const absl::StatusOr<Config> again = Read(printed.path());
  CKPT_CHECK(again.ok(), "what was printed is read");
  CKPT_CHECK(again->settings.size() == config->settings.size(), "every setting is printed");
  for (size_t i = 0; i < config->settings.size(); ++i) {
    const SettingValue& before = config->settings[i];
    CKPT_CHECK(before.flag == again->settings[i].flag, "settings have one order");
    // Roots are printed with their labels, and the file cannot name itself.
    if (before.flag == "root" || before.flag == "config") continue;
    CKPT_CHECK(before.text == again->settings[i].text, "a setting is read back");
  }
  CKPT_CHECK(config->roots.size() == again->roots.size(), "every root is printed");
  for (size_t i = 0; i < config->roots.size(); ++i) {
    CKPT_CHECK(config->roots[i].label == again->roots[i].label &&
                   config->roots[i].path == again->roots[i].path,
               "a root is read back");
  }
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}

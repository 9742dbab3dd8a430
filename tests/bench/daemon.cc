#include "tests/bench/daemon.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "storage/base/status.h"

namespace ckptd::bench {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPatience = absl::Minutes(1);

// From the runfiles, or beside this program in the build's output.
std::string BuiltBinary() {
  const fs::path near = "server/ckptd";
  if (fs::exists(near)) return near;
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path() / "../.." / near;
}

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string FolderOf(const std::string& root, const std::string& job, const std::string& id) {
  return absl::StrCat(root, "/", job, "/checkpoints/", id);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const std::string& binary,
                                                      const std::string& root,
                                                      const std::vector<std::string>& flags) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("make the root: ", root));
  std::string folder = "/tmp/ckptd-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return ErrnoStatus(errno, "make a folder in /tmp");
  std::vector<std::string> arguments = {binary.empty() ? BuiltBinary() : binary,
                                        "--root",
                                        root,
                                        "--socket",
                                        folder + "/s",
                                        "--node",
                                        fs::path(folder).filename(),
                                        "--log-format",
                                        "json"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  ASSIGN_OR_RETURN(std::unique_ptr<Child> child, Child::Start(arguments, folder + "/log"));
  std::unique_ptr<Daemon> daemon(new Daemon(root, folder, std::move(child)));
  RETURN_IF_ERROR(daemon->AwaitReady());
  return daemon;
}

Daemon::Daemon(std::string root, std::string folder, std::unique_ptr<Child> child)
    : root_(std::move(root)), folder_(std::move(folder)), child_(std::move(child)) {}

Daemon::~Daemon() {
  child_->Signal(SIGTERM);
  child_->AwaitEnd();
  std::error_code error;
  fs::remove_all(folder_, error);
}

absl::Status Daemon::AwaitReady() {
  const absl::Time deadline = absl::Now() + kPatience;
  while (absl::Now() < deadline) {
    const bool running = child_->Running();
    const std::string log = ReadText(folder_ + "/log");
    if (absl::StrContains(log, "\"event\":\"ready\"")) return absl::OkStatus();
    if (!running) return absl::UnavailableError(absl::StrCat("the daemon did not start: ", log));
    absl::SleepFor(absl::Milliseconds(2));
  }
  return absl::DeadlineExceededError("the daemon is not ready");
}

std::vector<std::string> Daemon::ShardsOf(const std::string& job, const std::string& id) const {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(FolderOf(root_, job, id), error)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::Status Daemon::Remove(const std::string& job, const std::string& id) const {
  std::error_code error;
  fs::remove_all(FolderOf(root_, job, id), error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("remove the checkpoint: ", id));
  return absl::OkStatus();
}

}  // namespace ckptd::bench

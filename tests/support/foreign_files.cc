#include "tests/support/foreign_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ckptd {
namespace {

namespace fs = std::filesystem;

// Some are nearly ours.
constexpr const char* kFiles[] = {".foreign", "foreign\nline", "MANIFEST.pb.foreign",
                                  "7-0123456789abcdeg", "%foreign"};
constexpr char kFolder[] = "lost+found";
constexpr char kDangling[] = "foreign dangling";
constexpr char kLink[] = "foreign link";
constexpr char kFolderLink[] = "foreign folder link";

// Kind, mode, time of change and content; "" if there is nothing.
std::string Describe(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return "";
  std::ostringstream text;
  text << status.st_mode << " " << status.st_mtim.tv_sec << "." << status.st_mtim.tv_nsec << " ";
  std::error_code ignored;
  if (S_ISLNK(status.st_mode)) text << fs::read_symlink(path, ignored).string();
  if (S_ISREG(status.st_mode)) text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void Write(const std::string& path) { std::ofstream(path) << "somebody else's: " << path; }

}  // namespace

bool ForeignFiles::IsOne(const std::string& name) {
  for (const char* file : kFiles) {
    if (name == file) return true;
  }
  return name == kFolder || name == kDangling || name == kLink || name == kFolderLink;
}

void ForeignFiles::Remember(const std::string& path) {
  std::string how = Describe(path);
  if (!how.empty()) known_[path] = std::move(how);
}

void ForeignFiles::Plant(const std::string& folder) {
  std::error_code error;
  // Not through a link, nor where we may not write.
  if (!fs::is_directory(fs::symlink_status(folder, error)) || !folders_.insert(folder).second) {
    return;
  }
  std::vector<std::string> paths;
  for (const char* file : kFiles) paths.push_back(absl::StrCat(folder, "/", file));
  for (const std::string& path : paths) Write(path);
  chmod(paths[0].c_str(), 0400);
  const std::string below = absl::StrCat(folder, "/", kFolder);
  fs::create_directory(below, error);
  Write(below + "/shard-00000-of-00001.safetensors");
  fs::create_symlink("/nowhere/at/all", absl::StrCat(folder, "/", kDangling), error);
  fs::create_symlink(kFiles[0], absl::StrCat(folder, "/", kLink), error);
  fs::create_directory_symlink(kFolder, absl::StrCat(folder, "/", kFolderLink), error);
  for (const char* name : {kFolder, kDangling, kLink, kFolderLink}) {
    paths.push_back(absl::StrCat(folder, "/", name));
  }
  paths.push_back(below + "/shard-00000-of-00001.safetensors");
  for (const std::string& path : paths) Remember(path);
}

void ForeignFiles::PlantInRoot(const std::string& root) {
  std::error_code error;
  if (!fs::is_directory(root, error)) return;
  Plant(root);
  Plant(root + "/.ckptd");
  Plant(root + "/.ckptd/nodes");
  for (const auto& job : fs::directory_iterator(root, error)) {
    const std::string name = job.path().filename().string();
    if (name == ".ckptd" || IsOne(name)) continue;
    Plant(job.path().string());
    for (const char* folder : {"checkpoints", "attempts", "failed", "retired", "trash"}) {
      Plant(absl::StrCat(job.path().string(), "/", folder));
    }
  }
}

void ForeignFiles::PlantFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  Plant(folder);
}

void ForeignFiles::PlantJobs(const std::string& root) {
  PlantFolder(root + "/theirs");
  PlantFolder(root + "/theirs-too");
  PlantFolder(root + "/theirs-too/checkpoints");
  PlantFolder(root + "/theirs-too/checkpoints/epoch-1");
}

void ForeignFiles::Check() {
  for (const auto& [path, how] : known_) {
    EXPECT_EQ(Describe(path), how) << "somebody else's file was touched: " << path;
  }
  known_.clear();
  folders_.clear();
}

}  // namespace ckptd

// ckptctl doctor on folders of all kinds. What a host forbids is in tests/e2e/hosts_test.cc.
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "storage/base/clock.h"
#include "storage/base/unique_fd.h"
#include "tests/client/cli/run_tool.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class Doctor : public testing::Test {
 protected:
  ToolResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"doctor", "--socket", absl::StrCat("/tmp/ckptd-doctor-", ::getpid(), "/s")});
    return RunTool(arguments);
  }

  // The checks by name.
  Json Checks(const ToolResult& result) {
    Json checks = Json::object();
    Json json = Json::parse(result.out, nullptr, false);
    if (json.is_discarded()) {
      ADD_FAILURE() << result.out << result.err;
      return checks;
    }
    for (const Json& check : json["checks"]) checks[check["name"].get<std::string>()] = check;
    return checks;
  }

  TempFolder folder_;
};

TEST_F(Doctor, AFolderThatCanBeWrittenHasAllThatIsNeededAndStaysEmpty) {
  ToolResult result = Run({"--root", folder_.path(), "-o", "json"});
  EXPECT_EQ(result.exit_code, kExitOk) << result.out << result.err;
  Json checks = Checks(result);
  std::vector<std::string> names;
  for (const auto& [name, check] : checks.items()) names.push_back(name);
  EXPECT_THAT(
      names, testing::ElementsAre("io_uring", "fixed_buffers", "direct_io", "memlock", "huge_pages",
                                  "memory", "file_system", "rename", "fsync", "locks", "socket"));
  for (const char* name : {"memory", "rename", "fsync", "locks", "socket"}) {
    EXPECT_EQ(checks[name]["ok"], true) << checks[name];
    EXPECT_EQ(checks[name]["needed"], true) << name;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Doctor, AFolderThatIsNotThereFailsWithTheReasonAndTheRestGoesOn) {
  std::string missing = folder_.path() + "/none";
  ToolResult result = Run({"--root", missing, "-o", "json"});
  EXPECT_EQ(result.exit_code, kExitFailed);
  Json checks = Checks(result);
  for (const char* name : {"direct_io", "file_system", "rename", "fsync", "locks"}) {
    EXPECT_EQ(checks[name]["ok"], false);
    EXPECT_THAT(checks[name]["value"].get<std::string>(), HasSubstr("No such file or directory"));
    EXPECT_THAT(checks[name]["advice"].get<std::string>(), HasSubstr("mkdir -p " + missing));
  }
  EXPECT_EQ(checks["socket"]["ok"], true) << checks["socket"];
  EXPECT_THAT(result.err, HasSubstr("rename fsync locks"));
  EXPECT_FALSE(std::filesystem::exists(missing));
}

TEST_F(Doctor, AFolderThatMayNotBeWrittenFailsWithTheReason) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0555));
  ToolResult result = Run({"--root", folder_.path(), "-o", "json"});
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  EXPECT_EQ(result.exit_code, kExitFailed);
  Json checks = Checks(result);
  EXPECT_EQ(checks["file_system"]["ok"], true);
  EXPECT_THAT(checks["rename"]["value"].get<std::string>(), HasSubstr("Permission denied"));
  EXPECT_THAT(checks["rename"]["advice"].get<std::string>(), HasSubstr("chown"));
}

TEST_F(Doctor, ASocketPathThatIsTooLongIsOneOfTheChecks) {
  ToolResult result = RunTool(
      {"doctor", "--root", folder_.path(), "-o", "json", "--socket", "/" + std::string(104, 's')});
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_THAT(Checks(result)["socket"]["value"].get<std::string>(), HasSubstr("105 bytes"));
}

TEST_F(Doctor, ASocketsFolderKeepsNothing) {
  EXPECT_EQ(
      RunTool({"doctor", "--root", folder_.path(), "--socket", folder_.path() + "/s"}).exit_code,
      folder_.path().size() + 2 > 104 ? kExitFailed : kExitOk);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Doctor, TheTableSaysWhatIsMissing) {
  ToolResult result = Run({"--root", folder_.path() + "/none"});
  EXPECT_THAT(result.out, HasSubstr("MISSING  rename"));
  EXPECT_THAT(result.out, HasSubstr("- mkdir -p"));
}

// A file system whose server answers nothing.
class HungMount {
 public:
  explicit HungMount(std::string path) : path_(std::move(path)) {
    device_ = UniqueFd(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!device_.valid()) return;
    std::string options =
        absl::StrCat("fd=", device_.get(), ",rootmode=40000,user_id=0,group_id=0");
    mounted_ = ::mount("ckptd-test", path_.c_str(), "fuse", 0, options.c_str()) == 0;
  }
  ~HungMount() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  HungMount(const HungMount&) = delete;
  HungMount& operator=(const HungMount&) = delete;

  bool mounted() const { return mounted_; }

 private:
  const std::string path_;
  UniqueFd device_;  // Closing it ends whoever hangs.
  bool mounted_ = false;
};

TEST_F(Doctor, AFolderThatHangsIsSaidToHangInTime) {
  HungMount hung(folder_.path());
  if (!hung.mounted()) GTEST_SKIP() << "needs to mount a file system by FUSE";
  absl::Duration begin = SystemClock().Monotonic();
  ToolResult result = Run({"--root", folder_.path(), "-o", "json", "--timeout", "500ms"});
  EXPECT_LT(SystemClock().Monotonic() - begin, absl::Seconds(20));
  EXPECT_EQ(result.exit_code, kExitFailed) << result.err;
  Json checks = Checks(result);
  EXPECT_EQ(checks["rename"]["value"], "no answer within 500ms");
  EXPECT_EQ(checks["memory"]["ok"], true);
  EXPECT_EQ(RunTool({"--root", folder_.path(), "--timeout", "500ms", "list"}).exit_code,
            kExitTimeout);
}

}  // namespace
}  // namespace ckptd

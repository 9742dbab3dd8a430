// Hosts that forbid things: the daemon runs, says what it does without and why, and what it saves
// is the same. `ckptctl doctor` says the same beforehand.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "storage/base/unique_fd.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using Restrictions = std::vector<std::string>;

constexpr char kInHost[] = "tests/e2e/in_host";
constexpr int kExitCannotRestrict = 77;

std::vector<std::string> InHost(const Restrictions& restrictions,
                                const std::vector<std::string>& command) {
  std::vector<std::string> all = {kInHost};
  all.insert(all.end(), restrictions.begin(), restrictions.end());
  all.push_back("--");
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

// A daemon in such a host, at the site's socket and root. Ready, or ended.
class HostDaemon {
 public:
  HostDaemon(const TestSite& site, const Restrictions& restrictions,
             const std::vector<std::string>& flags = {},
             const std::vector<std::string>& variables = {})
      : HostDaemon(site, restrictions, Flags(site, flags), variables, 0) {}

  // Without flags: at its defaults.
  static HostDaemon AtDefaults(const TestSite& site, const Restrictions& restrictions,
                               const std::vector<std::string>& variables) {
    return HostDaemon(site, restrictions, {"--log-format", "json"}, variables, 0);
  }

  bool ready() const { return ready_; }
  std::optional<int> AwaitEnd() { return process_->AwaitEnd(); }
  std::string Log() const { return ReadTextFile(log_path_); }
  bool CannotBe() { return !ready_ && process_->AwaitEnd() == kExitCannotRestrict; }

 private:
  static std::vector<std::string> Flags(const TestSite& site,
                                        const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--socket", site.socket(), "--root",       site.root(),
                                      "--node",   "node-a",      "--log-format", "json"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  HostDaemon(const TestSite& site, const Restrictions& restrictions,
             const std::vector<std::string>& flags, const std::vector<std::string>& variables, int)
      : log_path_(site.folder() + "/host-log") {
    std::vector<std::string> command = {kDaemonBinary};
    command.insert(command.end(), flags.begin(), flags.end());
    UniqueFd log(::open(log_path_.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644));
    process_.emplace(InHost(restrictions, command), variables,
                     ChildProcess::Streams{.err = log.get()});
    Eventually([&] {
      ready_ = absl::StrContains(Log(), R"("event":"ready")");
      return ready_ || !process_->Running();
    });
  }

  const std::string log_path_;
  std::optional<ChildProcess> process_;
  bool ready_ = false;
};

// The doctor's checks by name, and its exit code as "exit".
Json Doctor(const Restrictions& restrictions, const std::vector<std::string>& flags,
            const std::vector<std::string>& variables = {}) {
  std::vector<std::string> command = {kCkptctlBinary, "doctor", "-o", "json"};
  command.insert(command.end(), flags.begin(), flags.end());
  CommandResult result = RunProgram(InHost(restrictions, command), variables);
  Json checks = {{"exit", result.exit_code}};
  if (!result.json.is_object()) {
    ADD_FAILURE() << result.out << result.err;
    return checks;
  }
  for (const Json& check : result.json["checks"]) checks[check["name"].get<std::string>()] = check;
  return checks;
}

Json Doctor(const TestSite& site, const Restrictions& restrictions) {
  std::filesystem::create_directories(site.root());
  return Doctor(restrictions, {"--root", site.root(), "--socket", site.socket()});
}

// Sizes around every border of direct I/O.
std::vector<std::string> TrainerFlags() {
  std::vector<std::string> flags = {"--rank", "0", "--world-size", "1"};
  for (const char* bytes : {"1", "511", "512", "4095", "4096", "4097", "1048579", "3000000"}) {
    flags.insert(flags.end(), {"--tensor", absl::StrCat("w", bytes, ":uint8:", bytes)});
  }
  return flags;
}

// No byte more than the header says.
void ExpectExactLength(const std::string& shard) {
  std::string bytes = ReadTextFile(shard);
  uint64_t header = 0;
  ASSERT_GT(bytes.size(), sizeof header) << shard;
  std::memcpy(&header, bytes.data(), sizeof header);
  uint64_t data = 0;
  const Json entries = Json::parse(bytes.substr(8, header));
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    data = std::max(data, entry["data_offsets"][1].get<uint64_t>());
  }
  EXPECT_EQ(bytes.size(), 8 + header + data);
}

// Saves, loads and compares; the status while the arena is there.
Json SaveAndCompare(const TestSite& site) {
  TestTrainer rank(site, TrainerFlags());
  EXPECT_TRUE(rank.Ok("fill 1"));
  EXPECT_TRUE(rank.Ok("save a 1"));
  EXPECT_EQ(rank.AwaitOutcome("a")["event"], "committed");
  EXPECT_TRUE(rank.Ok("load a 60s"));
  EXPECT_EQ(rank.Do("check 1")["equal"], true);
  Json status = Ckptctl(site, {"status"}).json;
  EXPECT_EQ(Ckptctl(site, {"verify"}).exit_code, 0);
  ExpectExactLength(site.root() + "/job/checkpoints/a/shard-00000-of-00001.safetensors");
  return status;
}

std::string Text(const Json& json) { return json.is_string() ? json.get<std::string>() : ""; }

#define EXPECT_SAYS(json, part) \
  EXPECT_TRUE(absl::StrContains(Text(json), part)) << (json) << " does not say: " << (part)

#define SKIP_UNLESS_ALLOWED(daemon)                                         \
  if ((daemon).CannotBe()) GTEST_SKIP() << "cannot be: " << (daemon).Log(); \
  ASSERT_TRUE((daemon).ready()) << (daemon).Log()

TEST(Hosts, TheDoctorPromisesWhatTheDaemonThenDoes) {
  TestSite site;
  Json checks = Doctor(site, {});
  EXPECT_EQ(checks["exit"], 0) << checks;
  HostDaemon daemon(site, {});
  ASSERT_TRUE(daemon.ready()) << daemon.Log();
  Json status = SaveAndCompare(site);
  const Json& root = status["roots"][0];
  EXPECT_EQ(root["io"] == "uring", checks["io_uring"]["ok"]) << root << checks["io_uring"];
  EXPECT_EQ(root["direct"], checks["direct_io"]["ok"]) << root << checks["direct_io"];
  EXPECT_EQ(root["fixed_buffers"], checks["fixed_buffers"]["ok"]) << root;
  EXPECT_EQ(status["memory"]["huge_pages"], checks["huge_pages"]["ok"]) << status["memory"];
  EXPECT_EQ(status["memory"]["arena_limit_bytes"] > 0, checks["memory"]["ok"]);
}

class UringForbidden : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(UringForbidden, ThreadsWriteTheSameBytes) {
  const std::string& error = GetParam()[0];
  Restrictions host = {"--uring-setup", error};
  TestSite site;
  HostDaemon daemon(site, host);
  SKIP_UNLESS_ALLOWED(daemon);
  Json root = SaveAndCompare(site)["roots"][0];
  EXPECT_EQ(root["io"], "posix");
  EXPECT_SAYS(root["io_reason"], GetParam()[1]);
  std::vector<std::string> lines = absl::StrSplit(daemon.Log(), '\n');
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) {
                            return absl::StrContains(line, R"("level":"warning")");
                          }),
            1)
      << daemon.Log();
  EXPECT_TRUE(absl::StrContains(daemon.Log(), "no io_uring: ")) << daemon.Log();
  EXPECT_EQ(root["fixed_buffers"], false);
  Json checks = Doctor(site, host);
  EXPECT_EQ(checks["exit"], 0);
  EXPECT_EQ(checks["io_uring"]["ok"], false);
  EXPECT_SAYS(checks["io_uring"]["value"], GetParam()[1]);
  EXPECT_SAYS(checks["io_uring"]["advice"], GetParam()[2]);
  EXPECT_EQ(checks["fixed_buffers"]["ok"], false);
}

TEST_P(UringForbidden, AskedForByNameItIsRefusedWithTheReason) {
  TestSite site;
  HostDaemon daemon(site, {"--uring-setup", GetParam()[0]}, {"--io", "uring"});
  if (daemon.CannotBe()) GTEST_SKIP() << daemon.Log();
  EXPECT_EQ(daemon.AwaitEnd(), 2);
  EXPECT_TRUE(absl::StrContains(daemon.Log(), GetParam()[1])) << daemon.Log();
}

INSTANTIATE_TEST_SUITE_P(
    Hosts, UringForbidden,
    testing::Values(
        std::vector<std::string>{"EPERM", "Operation not permitted", "--security-opt seccomp="},
        std::vector<std::string>{"ENOSYS", "Function not implemented", "--security-opt seccomp="},
        std::vector<std::string>{"ENOMEM", "Cannot allocate memory", "--ulimit memlock=-1"}),
    [](const auto& info) { return info.param[0]; });

TEST(Hosts, WhereNoMemoryCanBeRegisteredUringWritesFromPlainMemory) {
  for (const Restrictions& host :
       {Restrictions{"--register-buffers", "ENOMEM"}, Restrictions{"--memlock", "8388608"},
        Restrictions{"--memlock", "65536"}, Restrictions{"--memlock", "0"}}) {
    SCOPED_TRACE(host[0] + " " + host[1]);
    TestSite site;
    HostDaemon daemon(site, host);
    SKIP_UNLESS_ALLOWED(daemon);
    Json root = SaveAndCompare(site)["roots"][0];
    Json checks = Doctor(site, host);
    EXPECT_EQ(checks["exit"], 0);
    EXPECT_EQ(root["io"] == "uring", checks["io_uring"]["ok"]) << root;
    EXPECT_EQ(root["fixed_buffers"], false);
    EXPECT_EQ(checks["fixed_buffers"]["ok"], false);
    // Without any locked memory there may be no ring either.
    EXPECT_SAYS(checks[root["io"] == "uring" ? "fixed_buffers" : "io_uring"]["advice"],
                "LimitMEMLOCK=");
    if (host[0] != "--memlock") continue;
    EXPECT_EQ(checks["memlock"]["ok"], false);
    EXPECT_SAYS(checks["memlock"]["advice"], "--ulimit memlock=-1");
  }
}

TEST(Hosts, WithoutHugePagesArenasHaveSmallOnes) {
  TestSite site;
  HostDaemon daemon(site, {"--huge-pages", "off"});
  SKIP_UNLESS_ALLOWED(daemon);
  EXPECT_EQ(SaveAndCompare(site)["memory"]["huge_pages"], false);
  Json checks = Doctor(site, {"--huge-pages", "off"});
  EXPECT_EQ(checks["exit"], 0);
  EXPECT_EQ(checks["huge_pages"]["ok"], false);
  EXPECT_SAYS(checks["huge_pages"]["advice"], "shmem_enabled");
}

TEST(Hosts, AReadOnlyRunIsSaidAndAnotherSocketDoes) {
  TestSite site;
  Restrictions host = {"--run", "read-only"};
  HostDaemon refused = HostDaemon::AtDefaults(site, host, {"CKPTD_ROOT=" + site.root()});
  if (refused.CannotBe()) GTEST_SKIP() << "cannot be: " << refused.Log();
  EXPECT_EQ(refused.AwaitEnd(), 5) << refused.Log();
  EXPECT_TRUE(absl::StrContains(refused.Log(), "/run/ckptd")) << refused.Log();
  std::filesystem::create_directories(site.root());
  Json checks = Doctor(host, {"--root", site.root()});
  EXPECT_EQ(checks["exit"], 1);
  EXPECT_SAYS(checks["socket"]["value"], "Read-only file system");
  EXPECT_SAYS(checks["socket"]["advice"], "--socket");
  EXPECT_EQ(Doctor(site, host)["exit"], 0);
  TestSite other;
  HostDaemon daemon(other, host);
  ASSERT_TRUE(daemon.ready()) << daemon.Log();
  SaveAndCompare(other);
}

TEST(Hosts, AnOrdinaryUserHasPlacesOfItsOwn) {
  TestSite site;
  const uid_t uid = 60000 + static_cast<uid_t>(::getpid() % 5000);
  if (::chown(site.folder().c_str(), uid, uid) != 0) GTEST_SKIP() << "needs to become another user";
  Restrictions host = {"--uid", std::to_string(uid)};
  std::vector<std::string> variables = {"HOME=" + site.folder()};
  std::string socket_folder = absl::StrCat("/tmp/ckptd-", uid);
  HostDaemon daemon = HostDaemon::AtDefaults(site, host, variables);
  SKIP_UNLESS_ALLOWED(daemon);
  WriteTextFile(site.folder() + "/commands", "fill 1\nsave a 1\nwait a committed 60s\n");
  WriteTextFile(site.folder() + "/more", "load a 60s\ncheck 1\n");
  for (const char* commands : {"/commands", "/more"}) {
    UniqueFd in(::open((site.folder() + commands).c_str(), O_RDONLY | O_CLOEXEC));
    UniqueFd out(::open((site.folder() + "/answers").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644));
    std::vector<std::string> trainer = {kTrainerBinary, "--stdin", "--job", "job"};
    for (const std::string& flag : TrainerFlags()) trainer.push_back(flag);
    ChildProcess rank(InHost(host, trainer), variables, {.in = in.get(), .out = out.get()});
    EXPECT_EQ(rank.AwaitEnd(), 0) << ReadTextFile(site.folder() + "/answers");
  }
  EXPECT_TRUE(absl::StrContains(ReadTextFile(site.folder() + "/answers"), R"("equal":true)"))
      << ReadTextFile(site.folder() + "/answers");
  std::string root = site.folder() + "/.local/state/ckptd";
  CommandResult status = RunProgram(
      {kCkptctlBinary, "--socket", socket_folder + "/ckptd.sock", "-o", "json", "status"});
  EXPECT_EQ(status.json["daemon"]["uid"], uid) << status.err;
  EXPECT_EQ(status.json["roots"][0]["path"], root);
  EXPECT_EQ(RunProgram({kCkptctlBinary, "--root", root, "verify"}).exit_code, 0);
  Json checks = Doctor(host, {}, variables);
  EXPECT_EQ(checks["exit"], 0) << checks;
  EXPECT_SAYS(checks["socket"]["value"], "a daemon answers at " + socket_folder);
  std::filesystem::remove_all(socket_folder);
}

// --- Roots of all kinds. Mounts are in a namespace of this test's own.

class Mounted {
 public:
  explicit Mounted(const TestSite& site) : site_(site), path_(site.root()) {
    std::filesystem::create_directories(path_);
  }
  ~Mounted() {
    site_.CheckForeignFiles();  // They go with the mount.
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;

  bool Mount(const std::string& source, const char* type, const std::string& options) {
    mounted_ = ::mount(source.c_str(), path_.c_str(), type, 0, options.c_str()) == 0;
    if (!mounted_) reason_ = absl::StrCat("mount ", type, ": ", std::strerror(errno));
    return mounted_;
  }
  // A new ext4 of this size on a loop device, which goes with the mount.
  bool MountLoop(const std::string& image, uint64_t bytes, uint32_t sector_bytes = 512) {
    std::ofstream(image).flush();
    std::filesystem::resize_file(image, bytes);
    const char* mkfs = ::access("/sbin/mkfs.ext4", X_OK) == 0 ? "/sbin/mkfs.ext4" : nullptr;
    if (mkfs == nullptr || RunProgram({mkfs, "-q", "-F", "-b", "4096", image}).exit_code != 0) {
      reason_ = "no mkfs.ext4";
      return false;
    }
    UniqueFd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    int number = control.valid() ? ::ioctl(control.get(), LOOP_CTL_GET_FREE) : -1;
    std::string device = absl::StrCat("/dev/loop", number);
    UniqueFd loop(::open(device.c_str(), O_RDWR | O_CLOEXEC));
    UniqueFd file(::open(image.c_str(), O_RDWR | O_CLOEXEC));
    loop_config config = {};
    config.fd = static_cast<uint32_t>(file.get());
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    config.block_size = sector_bytes;
    if (number < 0 || !loop.valid() || ::ioctl(loop.get(), LOOP_CONFIGURE, &config) != 0) {
      reason_ = absl::StrCat("no loop device: ", std::strerror(errno));
      return false;
    }
    return Mount(device, "ext4", "");
  }

  const std::string& reason() const { return reason_; }
  uint64_t FreeBytes() const {
    struct statvfs info;
    EXPECT_EQ(::statvfs(path_.c_str(), &info), 0);
    return info.f_bavail * info.f_frsize;
  }

 private:
  const TestSite& site_;
  const std::string path_;
  std::string reason_;
  bool mounted_ = false;
};

// The daemon chooses by a probe; the doctor's is the same.
void ExpectTheSame(const TestSite& site, const std::string& file_system) {
  Json checks = Doctor(site, {});
  EXPECT_EQ(checks["exit"], 0) << checks;
  HostDaemon daemon(site, {});
  ASSERT_TRUE(daemon.ready()) << daemon.Log();
  Json root = SaveAndCompare(site)["roots"][0];
  EXPECT_EQ(root["file_system"], file_system);
  EXPECT_EQ(root["direct"], checks["direct_io"]["ok"]) << root << checks["direct_io"];
  EXPECT_SAYS(checks["file_system"]["value"], file_system);
}

TEST(Hosts, ARootInMemoryIsWrittenThroughThePageCache) {
  TestSite site;
  Mounted root(site);
  if (!root.Mount("ckptd-test", "tmpfs", "size=64m")) GTEST_SKIP() << root.reason();
  ExpectTheSame(site, "tmpfs");
  Json checks = Doctor(site, {});
  EXPECT_EQ(checks["direct_io"]["ok"], false);
  EXPECT_SAYS(checks["direct_io"]["advice"], "O_DIRECT");
  EXPECT_SAYS(checks["file_system"]["advice"], "memory");
}

TEST(Hosts, AnOverlayIsARoot) {
  TestSite site;
  Mounted root(site);
  std::string options;
  for (const char* part : {"lower", "upper", "work"}) {
    std::filesystem::create_directories(absl::StrCat(site.folder(), "/", part));
    absl::StrAppend(&options, options.empty() ? "" : ",", part, "dir=", site.folder(), "/", part);
  }
  if (!root.Mount("ckptd-test", "overlay", options)) GTEST_SKIP() << root.reason();
  ExpectTheSame(site, "overlayfs");
  EXPECT_SAYS(Doctor(site, {})["file_system"]["advice"], "mount a volume");
}

TEST(Hosts, ASmallDiskIsARoot) {
  for (uint32_t sector_bytes : {512, 4096}) {
    SCOPED_TRACE(sector_bytes);
    TestSite site;
    Mounted root(site);
    if (!root.MountLoop(site.folder() + "/image", 64 << 20, sector_bytes)) {
      GTEST_SKIP() << root.reason();
    }
    ExpectTheSame(site, "ext4");
  }
}

// --- File systems without some of the usual calls

TEST(Hosts, WithoutLocksTheDaemonSaysWhereItCannotBe) {
  for (const char* error : {"ENOSYS", "EOPNOTSUPP"}) {
    TestSite site;
    HostDaemon daemon(site, {"--flock", error});
    if (daemon.CannotBe()) GTEST_SKIP() << "cannot be: " << daemon.Log();
    EXPECT_NE(daemon.AwaitEnd().value_or(0), 0);
    EXPECT_TRUE(absl::StrContains(daemon.Log(), "without locks")) << daemon.Log();
    EXPECT_TRUE(absl::StrContains(daemon.Log(), site.socket())) << daemon.Log();
  }
}

TEST(Hosts, WhereNothingCanBeRenamedNoSaveIsCalledCommitted) {
  TestSite site;
  HostDaemon daemon(site, {"--rename", "EINVAL"});
  SKIP_UNLESS_ALLOWED(daemon);
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:30000"});
  rank.Send("save a 1");
  Json end = rank.AwaitOutcome("a");
  EXPECT_EQ(end["event"], "failed") << end;
  EXPECT_SAYS(end["message"], "rename");
  EXPECT_EQ(ListedIds(site), std::vector<std::string>());
  Json checks = Doctor(site, {"--rename", "EINVAL"});
  EXPECT_EQ(checks["rename"]["ok"], false) << checks;
  EXPECT_EQ(checks["exit"], 1);
}

TEST(Hosts, ADiskThatFillsUpLateFailsTheSaveAndGivesItsSpaceBack) {
  TestSite site;
  Mounted root(site);
  if (!root.MountLoop(site.folder() + "/image", 96 << 20)) GTEST_SKIP() << root.reason();
  uint64_t free_before = root.FreeBytes();
  TestDaemon daemon(site, {.faulty = true});
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:41943040"});
  ASSERT_TRUE(rank.Ok("fill 1"));
  site.SetFaults("first-write=delay:2s");  // Between the look at the space and the first byte …
  rank.Send("save one 1");
  ASSERT_TRUE(Eventually([&] { return !Ckptctl(site, {"list"}).json["attempts"].empty(); }));
  std::string foreign = site.root() + "/foreign";
  UniqueFd fd(::open(foreign.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  off_t taken = static_cast<off_t>(free_before) - (10 << 20);
  ASSERT_EQ(::posix_fallocate(fd.get(), 0, taken), 0);  // … somebody else takes it.
  Json outcome = rank.AwaitOutcome("one");
  EXPECT_EQ(outcome["event"], "failed");
  EXPECT_EQ(outcome["code"], "RESOURCE_EXHAUSTED") << outcome;
  EXPECT_TRUE(Eventually([&] { return root.FreeBytes() > (9u << 20); })) << root.FreeBytes();
  TestTrainer small(
      site, {"--job", "small", "--rank", "0", "--world-size", "1", "--tensor", "w:uint8:4194304"});
  ASSERT_TRUE(small.Ok("fill 2"));
  ASSERT_TRUE(small.Ok("save two 2"));
  EXPECT_EQ(small.AwaitOutcome("two")["event"], "committed");
  ASSERT_TRUE(small.Ok("load two 60s"));
  EXPECT_EQ(small.Do("check 2")["equal"], true);
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // Mounts of a test are nobody else's, and end with it.
  if (::unshare(CLONE_NEWNS) == 0) {
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  }
  return RUN_ALL_TESTS();
}

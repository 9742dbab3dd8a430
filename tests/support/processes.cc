#include "tests/support/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "storage/base/check.h"
#include "storage/base/clock.h"

namespace ckptd {
namespace {

absl::Duration Now() { return SystemClock().Monotonic(); }

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

UniqueFd OpenFile(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  CKPT_CHECK(fd.valid(), "a file of the test can be opened");
  return fd;
}

std::string UniqueName(const std::string& prefix) {
  static std::atomic<int> number = 0;
  return absl::StrCat(prefix, number++);
}

bool NamesFlag(const std::vector<std::string>& flags, const std::string& flag) {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

}  // namespace

bool Eventually(const std::function<bool()>& condition, absl::Duration timeout) {
  const absl::Duration deadline = Now() + timeout;
  while (!condition()) {
    if (Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

std::string ReadTextFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void WriteTextFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  CKPT_CHECK(file.flush().good(), "a file of the test can be written");
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments,
                           const std::vector<std::string>& variables, Streams streams) {
  std::vector<std::string> argument_texts = arguments;
  std::vector<std::string> variable_texts = variables;
  const std::vector<char*> argv = Pointers(argument_texts);
  const std::vector<char*> environment = Pointers(variable_texts);
  const int fds[] = {streams.in, streams.out, streams.err};
  // Without the handlers of fork(): the child uses nothing of this process.
  pid_ = _Fork();
  CKPT_CHECK(pid_ >= 0, "the test can fork");
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_DFL);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int target = 0; target < 3; ++target) ::dup2(fds[target] < 0 ? null : fds[target], target);
  ::execve(argv[0], argv.data(), environment.data());
  ::_exit(127);
}

ChildProcess::~ChildProcess() {
  if (end_) return;
  Signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildProcess::Signal(int signal) const {
  if (!end_) ::kill(pid_, signal);
}

bool ChildProcess::Running() { return !AwaitEnd(absl::ZeroDuration()); }

std::optional<int> ChildProcess::AwaitEnd(absl::Duration timeout) {
  Eventually(
      [&] {
        int status = 0;
        if (!end_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
          end_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        }
        return end_.has_value();
      },
      timeout);
  return end_;
}

TestSite::TestSite() {
  ::signal(SIGPIPE, SIG_IGN);  // A trainer may be dead when it is told something.
  char path[] = "/tmp/ckptd-site-XXXXXX";
  CKPT_CHECK(::mkdtemp(path) != nullptr, "a folder in /tmp can be made");
  folder_ = path;
}

TestSite::~TestSite() {
  CheckForeignFiles();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void TestSite::SetFaults(const std::string& plan) const {
  const std::string temporary = fault_file() + ".new";
  WriteTextFile(temporary, plan);
  std::filesystem::rename(temporary, fault_file());
}

std::vector<Json> TestSite::FaultLog() const {
  std::vector<Json> lines;
  std::ifstream file(fault_log());
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

void TestSite::PlantForeignFiles() const {
  for (const std::string& root : {root(), other_root()}) foreign_.PlantInRoot(root);
}

TestDaemon::TestDaemon(const TestSite& site, const Options& options)
    : log_path_(absl::StrCat(site.folder(), "/", UniqueName("log-"))) {
  site.PlantForeignFiles();
  std::vector<std::string> arguments = {options.faulty ? kFaultyDaemonBinary : kDaemonBinary,
                                        "--socket",
                                        options.socket.empty() ? site.socket() : options.socket,
                                        "--root",
                                        options.root.empty() ? site.root() : options.root,
                                        "--node",
                                        options.node,
                                        "--log-format",
                                        "json"};
  if (options.faulty) {
    for (const std::string& text : {std::string("--fault-file"), site.fault_file(),
                                    std::string("--fault-log"), site.fault_log()}) {
      arguments.push_back(text);
    }
  }
  arguments.insert(arguments.end(), options.flags.begin(), options.flags.end());
  const UniqueFd log = OpenFile(log_path_, O_CREAT | O_WRONLY | O_APPEND);
  process_.emplace(arguments, options.variables, ChildProcess::Streams{.err = log.get()});
  Eventually([&] {
    ready_ = absl::StrContains(Log(), R"("event":"ready")");
    return ready_ || !process_->Running();
  });
}

std::string TestDaemon::Log() const { return ReadTextFile(log_path_); }

void TestDaemon::Kill() {
  process_->Signal(SIGKILL);
  EXPECT_TRUE(process_->AwaitEnd()) << "a killed daemon does not end";
}

std::optional<int> TestDaemon::Stop() {
  process_->Signal(SIGTERM);
  return process_->AwaitEnd();
}

TestTrainer::TestTrainer(const TestSite& site, std::vector<std::string> flags) {
  const std::pair<std::string, std::string> defaults[] = {
      {"--socket", site.socket()}, {"--job", "job"}, {"--incarnation", "1"}};
  for (const auto& [flag, value] : defaults) {
    if (!NamesFlag(flags, flag)) flags.insert(flags.end(), {flag, value});
  }
  std::vector<std::string> arguments = {kTrainerBinary};
  if (!NamesFlag(flags, "--steps")) arguments.push_back("--stdin");
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  int in[2];
  int out[2];
  CKPT_CHECK(::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0, "the test has pipes");
  in_ = UniqueFd(in[1]);
  out_ = UniqueFd(out[0]);
  const UniqueFd child_in(in[0]);
  const UniqueFd child_out(out[1]);
  const UniqueFd log = OpenFile(absl::StrCat(site.folder(), "/", UniqueName("trainer-")),
                                O_CREAT | O_WRONLY | O_APPEND);
  process_.emplace(arguments, std::vector<std::string>(),
                   ChildProcess::Streams{child_in.get(), child_out.get(), log.get()});
}

void TestTrainer::Send(const std::string& command) {
  const std::string line = command + "\n";
  // Commands are short: a pipe takes them whole.
  if (::write(in_.get(), line.data(), line.size()) < 0) {
    ADD_FAILURE() << "the trainer takes no command: " << command;
  }
}

bool TestTrainer::ReadLines(absl::Duration timeout) {
  pollfd entry = {out_.get(), POLLIN, 0};
  const int wait_ms = static_cast<int>(absl::ToInt64Milliseconds(timeout)) + 1;
  if (::poll(&entry, 1, std::max(wait_ms, 0)) <= 0) return false;
  char bytes[65536];
  const ssize_t count = ::read(out_.get(), bytes, sizeof(bytes));
  if (count <= 0) return false;
  partial_.append(bytes, static_cast<size_t>(count));
  for (size_t end; (end = partial_.find('\n')) != partial_.npos; partial_.erase(0, end + 1)) {
    Json line = Json::parse(partial_.substr(0, end), nullptr, false);
    if (line.is_discarded()) {
      ADD_FAILURE() << "the trainer says what is no JSON: " << partial_.substr(0, end);
    } else if (line.contains("cmd")) {
      answers_.push_back(std::move(line));
    } else {
      events_.push_back(std::move(line));
    }
  }
  return true;
}

Json TestTrainer::Answer(const std::string& verb, absl::Duration timeout) {
  const absl::Duration deadline = Now() + timeout;
  while (true) {
    auto found = std::find_if(answers_.begin(), answers_.end(),
                              [&](const Json& answer) { return answer["cmd"] == verb; });
    if (found != answers_.end()) {
      Json answer = std::move(*found);
      answers_.erase(found);
      return answer;
    }
    if (Now() > deadline || !ReadLines(deadline - Now())) {
      ADD_FAILURE() << "trainer " << pid() << " does not answer " << verb;
      return Json();
    }
  }
}

Json TestTrainer::Do(const std::string& command, absl::Duration timeout) {
  Send(command);
  return Answer(command.substr(0, command.find(' ')), timeout);
}

bool TestTrainer::Ok(const std::string& command, absl::Duration timeout) {
  const Json answer = Do(command, timeout);
  const bool ok = answer.is_object() && answer["ok"] == true;
  if (!ok) ADD_FAILURE() << command << ": " << answer.dump();
  return ok;
}

Json TestTrainer::FindEvent(const std::set<std::string>& names, const std::string& id,
                            absl::Duration timeout) {
  const absl::Duration deadline = Now() + timeout;
  size_t seen = 0;
  while (true) {
    for (; seen < events_.size(); ++seen) {
      const Json& event = events_[seen];
      if (names.contains(event["event"]) && event["id"] == id) return event;
    }
    if (Now() > deadline || !ReadLines(deadline - Now())) return Json();
  }
}

Json TestTrainer::AwaitOutcome(const std::string& id, absl::Duration timeout) {
  Json event = FindEvent({"committed", "failed"}, id, timeout);
  if (event.is_null()) {
    ADD_FAILURE() << "trainer " << pid() << " never hears how " << id
                  << " ended; it has heard: " << Json(events_).dump();
    return Json{{"event", ""}, {"code", ""}, {"message", ""}};
  }
  return event;
}

std::optional<int> TestTrainer::Finish(absl::Duration timeout) {
  const absl::Duration deadline = Now() + timeout;
  in_ = UniqueFd();
  while (ReadLines(deadline - Now())) {
  }
  return process_->AwaitEnd(deadline - Now());
}

std::vector<std::string> RankFlags(int rank, int world_size, std::vector<std::string> more) {
  more.insert(more.end(), {"--rank", absl::StrCat(rank), "--world-size", absl::StrCat(world_size)});
  return more;
}

void BeginSave(TestTrainer& rank, const std::string& id, int step) {
  rank.Ok(absl::StrCat("fill ", step));
  rank.Send(absl::StrCat("save ", id, " ", step));
}

void ExpectLoads(TestTrainer& rank, const std::string& id, int step) {
  rank.Ok("fill 0");
  rank.Ok(absl::StrCat("load ", id, " 0s"));
  EXPECT_EQ(rank.Do(absl::StrCat("check ", step))["equal"], true) << id;
}

CommandResult RunProgram(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& variables, absl::Duration timeout) {
  const TestSite site;
  const std::string out_path = site.folder() + "/out";
  const std::string err_path = site.folder() + "/err";
  const UniqueFd out = OpenFile(out_path, O_CREAT | O_WRONLY);
  const UniqueFd err = OpenFile(err_path, O_CREAT | O_WRONLY);
  ChildProcess process(arguments, variables, {.out = out.get(), .err = err.get()});
  const std::optional<int> end = process.AwaitEnd(timeout);
  if (!end) ADD_FAILURE() << "does not end: " << absl::StrJoin(arguments, " ");
  CommandResult result{end.value_or(-1), ReadTextFile(out_path), ReadTextFile(err_path), Json()};
  Json json = Json::parse(result.out, nullptr, false);
  if (!json.is_discarded()) result.json = std::move(json);
  return result;
}

CommandResult Ckptctl(const TestSite& site, std::vector<std::string> arguments) {
  if (NamesFlag(arguments, "delete")) site.PlantForeignFiles();
  const std::vector<std::string> first = {kCkptctlBinary, "--socket",  site.socket(), "-o",
                                          "json",         "--timeout", "30s"};
  arguments.insert(arguments.begin(), first.begin(), first.end());
  return RunProgram(arguments);
}

CommandResult OfflineCkptctl(const TestSite& site, std::vector<std::string> arguments) {
  const std::vector<std::string> first = {kCkptctlBinary, "--root", site.root(), "-o", "json"};
  arguments.insert(arguments.begin(), first.begin(), first.end());
  return RunProgram(arguments);
}

std::vector<std::string> ListedIds(const TestSite& site, const std::string& job) {
  const CommandResult list = Ckptctl(site, {"--job", job, "list"});
  EXPECT_TRUE(list.exit_code == 0 || list.exit_code == 3) << list.err;  // 3: no such job.
  std::vector<std::string> ids;
  if (!list.json.is_object()) return ids;
  for (const Json& checkpoint : list.json["checkpoints"]) ids.push_back(checkpoint["id"]);
  return ids;
}

std::map<std::string, std::string> ReadTree(const std::string& folder) {
  std::map<std::string, std::string> tree;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(folder, error);
  for (; entry != end(entry); entry.increment(error)) {
    if (ForeignFiles::IsOne(entry->path().filename().string())) {
      entry.disable_recursion_pending();
      continue;
    }
    const std::string name = entry->path().lexically_relative(folder).string();
    tree[name] = entry->is_directory() ? "/" : ReadTextFile(entry->path().string());
  }
  EXPECT_FALSE(error) << folder << ": " << error.message();
  return tree;
}

}  // namespace ckptd

#include "server/config.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Surroundings User() {
  Surroundings surroundings;
  surroundings.uid = 1000;
  surroundings.host_name = "node-a";
  surroundings.working_folder = "/users/u";
  surroundings.variables = {{"HOME", "/users/u"}, {"XDG_RUNTIME_DIR", "/run/user/1000"}};
  return surroundings;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

Config MustParse(const std::vector<std::string>& arguments,
                 const Surroundings& surroundings = User()) {
  auto config = ParseConfig(arguments, surroundings);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : Config{};
}

std::string ErrorOf(const std::vector<std::string>& arguments,
                    const Surroundings& surroundings = User()) {
  auto config = ParseConfig(arguments, surroundings);
  EXPECT_FALSE(config.ok());
  return std::string(config.status().message());
}

std::string OriginOf(const Config& config, const std::string& flag) {
  for (const SettingValue& setting : config.settings) {
    if (setting.flag == flag) return setting.origin;
  }
  return "";
}

TEST(Config, HasTheDocumentedDefaults) {
  Config config = MustParse({});
  EXPECT_EQ(config.action, ProgramAction::kRun);
  EXPECT_EQ(config.socket, "/run/user/1000/ckptd/ckptd.sock");
  ASSERT_EQ(config.roots.size(), 1u);
  EXPECT_EQ(config.roots[0].label, "default");
  EXPECT_EQ(config.roots[0].path, "/users/u/.local/state/ckptd");
  EXPECT_EQ(config.node, "node-a");
  EXPECT_EQ(config.io, IoEngine::kAuto);
  EXPECT_EQ(config.block_bytes, 16u << 20);
  EXPECT_EQ(config.arena_limit.percent, 50u);
  EXPECT_EQ(config.read_window_bytes, 256u << 20);
  EXPECT_EQ(config.max_inflight_attempts, 2u);
  EXPECT_EQ(config.keep_last, 0u);
  EXPECT_EQ(config.recheck_every, 1u);
  EXPECT_EQ(config.join_timeout, absl::Seconds(600));
  EXPECT_EQ(config.attempt_timeout, absl::Seconds(600));
  EXPECT_EQ(config.admit_timeout, absl::Seconds(120));
  EXPECT_EQ(config.peer_lost_timeout, absl::Seconds(10));
  EXPECT_EQ(config.reattach_timeout, absl::Seconds(10));
  EXPECT_EQ(config.root_visible_timeout, absl::Seconds(60));
  EXPECT_EQ(config.settle_timeout, absl::Seconds(60));
  EXPECT_EQ(config.drain_timeout, absl::Seconds(30));
  EXPECT_EQ(config.trash_grace, absl::Minutes(10));
  EXPECT_EQ(config.log_level, LogLevel::kInfo);
  EXPECT_TRUE(config.warnings.empty());
  EXPECT_EQ(OriginOf(config, "node"), "default");
}

TEST(Config, TheProductionDaemonKnowsNoFaults) {
  for (const char* flag : {"--fault-plan", "--fault-file", "--fault-log"}) {
    EXPECT_THAT(ErrorOf({flag, "x"}), HasSubstr(flag));
  }
  EXPECT_THAT(ErrorOf({"--fault-list"}), HasSubstr("--fault-list"));
}

TEST(Config, DefaultPathsDependOnTheUid) {
  Surroundings root = User();
  root.uid = 0;
  EXPECT_EQ(MustParse({}, root).socket, "/run/ckptd/ckptd.sock");
  EXPECT_EQ(MustParse({}, root).roots[0].path, "/var/lib/ckptd");

  Surroundings bare = User();
  bare.variables = {{"XDG_STATE_HOME", "/state"}};
  EXPECT_EQ(MustParse({}, bare).socket, "/tmp/ckptd-1000/ckptd.sock");
  EXPECT_EQ(MustParse({}, bare).roots[0].path, "/state/ckptd");

  bare.variables = {};
  EXPECT_THAT(ErrorOf({}, bare), HasSubstr("no --root given"));
}

TEST(Config, AFlagWinsOverAVariableOverTheFileOverTheDefault) {
  std::string file = WriteFile("order.toml",
                               "node = \"file\"\nkeep_last = 3\njoin_timeout = \"5s\"\n"
                               "direct = true\nroot = [\"/a\", \"fast=/b\"]\n");
  Surroundings surroundings = User();
  surroundings.variables["CKPTD_NODE"] = "variable";
  surroundings.variables["CKPTD_JOIN_TIMEOUT"] = "6s";
  Config config = MustParse({"--config", file, "--node=flag"}, surroundings);
  EXPECT_EQ(config.node, "flag");
  EXPECT_EQ(config.join_timeout, absl::Seconds(6));
  EXPECT_EQ(config.keep_last, 3u);
  EXPECT_EQ(config.direct, Choice::kOn);
  ASSERT_EQ(config.roots.size(), 2u);
  EXPECT_EQ(config.roots[1].label, "fast");
  EXPECT_EQ(OriginOf(config, "node"), "--node");
  EXPECT_EQ(OriginOf(config, "join-timeout"), "$CKPTD_JOIN_TIMEOUT");
  EXPECT_EQ(OriginOf(config, "keep-last"), file);
  EXPECT_EQ(OriginOf(config, "io"), "default");
}

TEST(Config, TheFileMayBeNamedByAVariable) {
  Surroundings surroundings = User();
  surroundings.variables["CKPTD_CONFIG"] = WriteFile("variable.toml", "node = \"x\"\n");
  EXPECT_EQ(MustParse({}, surroundings).node, "x");
}

TEST(Config, AnUnknownFlagOrKeyNamesTheNearestOne) {
  EXPECT_THAT(ErrorOf({"--blok-size", "1MiB"}), HasSubstr("did you mean --block-size?"));
  std::string file = WriteFile("unknown.toml", "rot = \"/a\"\n");
  EXPECT_EQ(ErrorOf({"--config", file}),
            "--config: " + file + ": unknown key rot; did you mean root?");
  EXPECT_THAT(ErrorOf({"--config", WriteFile("switch.toml", "version = true\n")}),
              HasSubstr("unknown key version"));
}

TEST(Config, AnUnknownVariableIsAWarningUnlessAClientReadsIt) {
  Surroundings surroundings = User();
  surroundings.variables["CKPTD_JOB"] = "llm";
  surroundings.variables["CKPTD_RANK"] = "0";
  surroundings.variables["CKPTD_ROOTS"] = "/a";
  EXPECT_THAT(MustParse({}, surroundings).warnings,
              ElementsAre("unknown variable CKPTD_ROOTS is ignored; did you mean CKPTD_ROOT?"));
}

TEST(Config, BadValuesSayWhereTheyCameFrom) {
  EXPECT_THAT(ErrorOf({"--block-size", "3MiB"}), HasSubstr("--block-size: 3MiB is not a power"));
  EXPECT_THAT(ErrorOf({"--block-size", "512KiB"}), HasSubstr("1MiB"));
  EXPECT_THAT(ErrorOf({"--io", "aio"}), HasSubstr("\"aio\" is none of auto, uring, posix"));
  EXPECT_THAT(ErrorOf({"--join-timeout", "5"}), HasSubstr("--join-timeout: not a duration"));
  EXPECT_THAT(ErrorOf({"--arena-limit", "101%"}), HasSubstr("not within 1% and 100%"));
  EXPECT_THAT(ErrorOf({"--recheck", "1/0"}), HasSubstr("1/N"));
  EXPECT_THAT(ErrorOf({"--max-inflight-attempts", "0"}), HasSubstr("at least 1"));
  EXPECT_THAT(ErrorOf({"--node", ""}), HasSubstr("--node: "));
  Surroundings surroundings = User();
  surroundings.variables["CKPTD_KEEP_LAST"] = "few";
  EXPECT_THAT(ErrorOf({}, surroundings), HasSubstr("$CKPTD_KEEP_LAST: not a whole number"));
  std::string file = WriteFile("bad.toml", "read_window = \"lots\"\n");
  EXPECT_THAT(ErrorOf({"--config", file}), HasSubstr(file + ": read_window: not a size"));
}

TEST(Config, MalformedArgumentsAreRefused) {
  EXPECT_THAT(ErrorOf({"serve"}), HasSubstr("\"serve\" is not a flag"));
  EXPECT_THAT(ErrorOf({"--node"}), HasSubstr("--node needs a value"));
  EXPECT_THAT(ErrorOf({"--check-config=yes"}), HasSubstr("takes no value"));
  EXPECT_THAT(ErrorOf({"--node", "a", "--node", "b"}), HasSubstr("given twice: a and b"));
}

TEST(Config, BadFilesAreNamedWithTheLine) {
  std::string broken = WriteFile("broken.toml", "node = \"x\"\nkeep_last = = 3\n");
  EXPECT_THAT(ErrorOf({"--config", broken}), HasSubstr(broken + ":2: "));
  std::string array = WriteFile("array.toml", "root = [}\n");
  EXPECT_THAT(ErrorOf({"--config", array}), HasSubstr(array + ": this is no TOML"));
  std::string table = WriteFile("table.toml", "[server]\nnode = \"x\"\n");
  EXPECT_THAT(ErrorOf({"--config", table}), HasSubstr("server is neither a text"));
  EXPECT_THAT(ErrorOf({"--config", "/nowhere/ckptd.toml"}), HasSubstr("/nowhere/ckptd.toml"));
}

TEST(Config, RootsHaveDifferentLabelsAndPaths) {
  Config config = MustParse({"--root", "data", "--root", "fast=/nvme/x=y/"});
  ASSERT_EQ(config.roots.size(), 2u);
  EXPECT_EQ(config.roots[0].path, "/users/u/data");
  EXPECT_EQ(config.roots[1].path, "/nvme/x=y");
  EXPECT_EQ(MustParse({"--root", "/a/b=c"}).roots[0].path, "/a/b=c");
  EXPECT_THAT(ErrorOf({"--root", "/a", "--root", "/b"}), HasSubstr("without a label"));
  EXPECT_THAT(ErrorOf({"--root", "/a", "--root", "default=/b"}),
              HasSubstr("two roots are labelled default: /a and /b"));
  EXPECT_THAT(ErrorOf({"--root", "/a", "--root", "b=/a/"}), HasSubstr("/a is given twice"));
  EXPECT_THAT(ErrorOf({"--root", "a b=/a"}), HasSubstr("is no label"));
}

TEST(Config, TheVariableOfTheRootsTakesSeveral) {
  Surroundings surroundings = User();
  surroundings.variables["CKPTD_ROOT"] = "/a:fast=/b";
  Config config = MustParse({}, surroundings);
  ASSERT_EQ(config.roots.size(), 2u);
  EXPECT_EQ(config.roots[1].path, "/b");
}

TEST(Config, ASocketPathOver104BytesIsRefusedWithItsLength) {
  std::string longest = "/" + std::string(103, 's');
  EXPECT_EQ(MustParse({"--socket", longest}).socket, longest);
  EXPECT_THAT(ErrorOf({"--socket", longest + "s"}),
              testing::AllOf(HasSubstr("105 bytes"), HasSubstr(longest + "s")));
}

TEST(Config, SwitchesSayWhatToDo) {
  EXPECT_EQ(MustParse({"--check-config"}).action, ProgramAction::kCheckConfig);
  EXPECT_EQ(MustParse({"--print-config"}).action, ProgramAction::kPrintConfig);
  EXPECT_EQ(MustParse({"--version"}).action, ProgramAction::kVersion);
  EXPECT_EQ(MustParse({"-h"}).action, ProgramAction::kHelp);
}

TEST(Config, HelpNamesEveryFlagWithItsDefault) {
  std::string help = HelpText(User());
  for (const Setting& setting : NodeSettings(User())) {
    EXPECT_THAT(help, HasSubstr("--" + setting.flag));
    EXPECT_THAT(help, HasSubstr(setting.default_text));
  }
}

TEST(Config, PrintedSettingsReadBack) {
  Config config = MustParse({"--root", "/a", "--root", "b=/b \"q\"", "--keep-last", "7"});
  std::string text = PrintConfigText(config);
  EXPECT_THAT(text, HasSubstr("# --keep-last"));
  EXPECT_THAT(text, HasSubstr("# default"));
  Config again = MustParse({"--config", WriteFile("printed.toml", text)});
  EXPECT_EQ(again.keep_last, 7u);
  ASSERT_EQ(again.roots.size(), 2u);
  EXPECT_EQ(again.roots[1].path, "/b \"q\"");
}

TEST(Config, ExtraSettingsComeFromTheSameSources) {
  std::string plan;
  Setting setting{"Faults",
                  "fault-plan",
                  "RULES",
                  "",
                  "what goes wrong",
                  false,
                  false,
                  [&plan](const std::vector<std::string>& texts, Config&) {
                    plan = texts.front();
                    return absl::OkStatus();
                  }};
  Surroundings surroundings = User();
  surroundings.variables["CKPTD_FAULT_PLAN"] = "op@1=kill";
  ASSERT_TRUE(ParseConfig({}, surroundings, {setting}).ok());
  EXPECT_EQ(plan, "op@1=kill");
  EXPECT_THAT(HelpText(surroundings, {setting}), HasSubstr("--fault-plan RULES"));
}

}  // namespace
}  // namespace ckptd

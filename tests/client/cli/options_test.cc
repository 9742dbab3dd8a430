#include "client/cli/options.h"

#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Options MustParse(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  auto parsed = ParseOptions(arguments, variables, 0);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok() || !std::holds_alternative<Options>(*parsed)) return Options{};
  return std::get<Options>(*parsed);
}

std::string ErrorOf(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  auto parsed = ParseOptions(arguments, variables, 0);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

std::string HelpOf(const std::vector<std::string>& arguments) {
  auto parsed = ParseOptions(arguments, {}, 0);
  EXPECT_TRUE(parsed.ok() && std::holds_alternative<HelpRequest>(*parsed)) << parsed.status();
  return parsed.ok() ? std::get<HelpRequest>(*parsed).text : "";
}

TEST(Options, CommonOptionsStandBeforeOrBehindTheVerb) {
  Options before = MustParse({"--job", "j", "-o", "json", "--timeout", "250ms", "list", "--all"});
  Options behind = MustParse({"list", "--all", "--job", "j", "-o", "json", "--timeout", "250ms"});
  for (const Options& options : {before, behind}) {
    EXPECT_EQ(options.verb, Verb::kList);
    EXPECT_EQ(options.job, "j");
    EXPECT_TRUE(options.json);
    EXPECT_TRUE(options.all);
    EXPECT_EQ(options.timeout, absl::Milliseconds(250));
    EXPECT_TRUE(options.timeout_given);
  }
}

TEST(Options, HaveDefaults) {
  Options options = MustParse({"wait", "step-1"});
  EXPECT_EQ(options.socket, "/run/ckptd/ckptd.sock");
  EXPECT_EQ(options.socket_origin, "the default of uid 0");
  EXPECT_EQ(options.timeout, absl::Seconds(10));
  EXPECT_FALSE(options.timeout_given);
  EXPECT_FALSE(options.json);
  EXPECT_EQ(options.state, "committed");
  EXPECT_THAT(options.ids, ElementsAre("step-1"));
}

TEST(Options, ARootLabelIsOfADaemon) {
  EXPECT_EQ(MustParse({"--root-label", "[big]", "list"}).root_label, "[big]");
  EXPECT_EQ(MustParse({"list"}).root_label, "");
  EXPECT_THAT(ErrorOf({"--root", "/r", "--root-label", "big", "list"}), HasSubstr("--root-label"));
}

TEST(Options, TheSocketIsTheFlagOrTheVariable) {
  Variables variables = {{"CKPTD_SOCKET", "/v/s"}};
  EXPECT_EQ(MustParse({"status"}, variables).socket, "/v/s");
  EXPECT_EQ(MustParse({"status"}, variables).socket_origin, "$CKPTD_SOCKET");
  EXPECT_EQ(MustParse({"--socket", "/f/s", "status"}, variables).socket, "/f/s");
  EXPECT_EQ(MustParse({"--socket", "/f/s", "status"}, variables).socket_origin, "--socket");
  EXPECT_THAT(ErrorOf({"--socket", "/" + std::string(104, 's'), "status"}),
              AllOf(HasSubstr("--socket: "), HasSubstr("105 bytes")));
}

TEST(Options, TheJobOfTheVariableIsForVerbsAboutOneJob) {
  Variables variables = {{"CKPTD_JOB", "v"}};
  EXPECT_EQ(MustParse({"latest"}, variables).job, "v");
  EXPECT_EQ(MustParse({"latest", "--job", "f"}, variables).job, "f");
  EXPECT_EQ(MustParse({"verify", "x"}, variables).job, "v");
  EXPECT_EQ(MustParse({"verify", "--all"}, variables).job, "");
  EXPECT_EQ(MustParse({"list"}, variables).job, "");
}

TEST(Options, AFolderAnswersOnlySomeVerbs) {
  for (const char* verb : {"list", "latest", "verify"}) {
    EXPECT_EQ(MustParse({"--root", "/r/", verb}).root, "/r");
  }
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"status"}, {"wait", "x"}, {"delete", "x"}, {"health"}}) {
    std::vector<std::string> all = {"--root", "/r"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    EXPECT_THAT(ErrorOf(all), HasSubstr("needs a daemon"));
  }
  EXPECT_THAT(ErrorOf({"--root", "/r", "--socket", "/s", "list"}), HasSubstr("excludes"));
}

TEST(Options, WrongCommandLinesAreRefused) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("required"));
  EXPECT_THAT(ErrorOf({"lst"}), AllOf(HasSubstr("\"lst\""), HasSubstr("list")));
  EXPECT_THAT(ErrorOf({"list", "--al"}), HasSubstr("--al"));
  EXPECT_THAT(ErrorOf({"show"}), HasSubstr("id is required"));
  EXPECT_THAT(ErrorOf({"wait", "x", "--for", "saved"}), HasSubstr("saved"));
  EXPECT_THAT(ErrorOf({"list", "-o", "yaml"}), HasSubstr("yaml"));
  EXPECT_THAT(ErrorOf({"list", "--timeout", "10"}), HasSubstr("--timeout: not a duration"));
  EXPECT_THAT(ErrorOf({"health", "--wait", "soon"}), HasSubstr("--wait: not a duration"));
  EXPECT_THAT(ErrorOf({"verify", "x", "--all"}), HasSubstr("excludes"));
}

TEST(Options, AVerbThatIsNearlyOneIsSuggested) {
  EXPECT_THAT(ErrorOf({"stauts"}), HasSubstr("did you mean status?"));
  EXPECT_THAT(ErrorOf({"restore"}),
              AllOf(HasSubstr("the verbs are"), testing::Not(HasSubstr("did you mean"))));
}

TEST(Options, TheDoctorHasARootAndASocket) {
  Options options = MustParse({"doctor"});
  EXPECT_EQ(options.root, "/var/lib/ckptd");
  EXPECT_EQ(options.socket, "/run/ckptd/ckptd.sock");
  options = MustParse({"doctor", "--root", "/r/", "--socket", "/s"});
  EXPECT_EQ(options.root, "/r");
  EXPECT_EQ(options.socket, "/s");
  auto homeless = ParseOptions({"doctor"}, {}, 1000);
  EXPECT_THAT(std::string(homeless.status().message()), HasSubstr("--root"));
}

TEST(Options, IdsAreTakenAsTheyAre) {
  EXPECT_THAT(MustParse({"delete", "list", "[a,b]", "c,d", "--yes"}).ids,
              ElementsAre("list", "[a,b]", "c,d"));
  EXPECT_THAT(MustParse({"show", "[a]"}).ids, ElementsAre("[a]"));
  EXPECT_THAT(MustParse({"show", "--", "-x"}).ids, ElementsAre("-x"));
}

TEST(Options, EveryVerbHasHelpWithAnExample) {
  for (const char* verb : {"list", "status", "show", "describe", "verify", "latest", "wait",
                           "delete", "health", "doctor", "version"}) {
    EXPECT_THAT(HelpOf({verb, "--help"}),
                AllOf(HasSubstr("Example: ckptctl"), HasSubstr(std::string("ckptctl ") + verb)));
    EXPECT_THAT(HelpOf({"--help"}), HasSubstr(verb));
  }
}

TEST(Options, JsonIsSeenWhereTheRestDoesNotParse) {
  EXPECT_TRUE(AsksForJson({"nonsense", "-o", "json"}));
  EXPECT_TRUE(AsksForJson({"--output=json"}));
  EXPECT_FALSE(AsksForJson({"list", "-o", "table"}));
  EXPECT_FALSE(AsksForJson({"list", "-o"}));
}

}  // namespace
}  // namespace ckptd

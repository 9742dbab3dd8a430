// Every deliberate mistake of storage/commit/mutation.h is caught by the simulator, and without one
// it finds nothing.
#include "storage/commit/mutation.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/sim/commit_sim.h"

namespace ckptd {
namespace {

// The first violation under the mutation; empty if there is none.
std::string Search(Mutation mutation) {
  active_mutation = mutation;
  std::string found;
  auto keep = [&](const CommitSim& sim) {
    if (!sim.violations().empty()) found = sim.violations().front();
    return !found.empty();
  };
  for (const CommitSim::Options& options :
       {CommitSim::Options{}, CommitSim::Options{.abort = true}, CommitSim::Options{.nodes = 2},
        CommitSim::Options{.older = 1}}) {
    CommitSim sim(options);
    sim.RunLife();
    if (keep(sim)) break;
  }
  for (CommitSim::Pair pair : {CommitSim::Pair::kCommitAndAbort}) {
    if (!found.empty()) break;
    CommitSim sim({.nodes = 2});
    sim.RunPair(pair);
    keep(sim);
  }
  for (CommitSim::Pair pair :
       {CommitSim::Pair::kCommitAndDelete, CommitSim::Pair::kReplaceAndDelete}) {
    if (!found.empty()) break;
    CommitSim sim({.replace = pair == CommitSim::Pair::kReplaceAndDelete, .older = 1});
    sim.RunPair(pair);
    keep(sim);
  }
  if (found.empty()) {
    CommitSim sim({.older = 1});
    sim.RunDeleteBesideDamaged();
    keep(sim);
  }
  active_mutation = Mutation::kNone;
  return found;
}

TEST(Mutation, WithoutOneNothingIsFound) { EXPECT_EQ(Search(Mutation::kNone), ""); }

TEST(Mutation, EveryOneIsCaught) {
  for (int i = 1; i < static_cast<int>(Mutation::kCount); ++i) {
    std::string found = Search(static_cast<Mutation>(i));
    EXPECT_NE(found, "") << "mutation " << i << " is not caught";
    std::printf("mutation %d: %s\n", i, found.substr(0, found.find('\n')).c_str());
  }
}

}  // namespace
}  // namespace ckptd

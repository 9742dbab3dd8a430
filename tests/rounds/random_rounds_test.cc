// Random faults at random moments of random saves.
//
// CKPTD_ROUNDS: how many rounds. CKPTD_SEED: what they are; without it another run has others.
#include "tests/rounds/random_rounds.h"

#include <gtest/gtest.h>
#include <sys/random.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ckptd {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr int kRounds = 40;
#else
constexpr int kRounds = 200;
#endif

uint64_t Seed() {
  uint64_t seed = 0;
  if (const char* text = std::getenv("CKPTD_SEED")) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &seed)) << "CKPTD_SEED=" << text;
  } else {
    EXPECT_EQ(getrandom(&seed, 4, 0), 4);
  }
  return seed;
}

int Rounds() {
  int rounds = kRounds;
  if (const char* text = std::getenv("CKPTD_ROUNDS")) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &rounds)) << "CKPTD_ROUNDS=" << text;
  }
  return rounds;
}

TEST(RandomRounds, WhateverHappensWhatIsListedIsWholeAndTheNextSaveCommits) {
  const uint64_t seed = Seed();
  RandomRounds rounds(seed);
  for (int round = 1; round <= Rounds() && !HasFailure(); ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round, "; the same faults again: CKPTD_SEED=", seed,
                              " CKPTD_ROUNDS=", round));
    rounds.Round();
  }
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), rounds.Summary().c_str());
}

}  // namespace
}  // namespace ckptd

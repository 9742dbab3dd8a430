// Trains a vector, saves it every tenth step, and goes on from the latest checkpoint when it is
// started again.
#include <cstdio>
#include <vector>

#include "client/cpp/session.h"

int main() {
  std::vector<float> weights(1'000'000);
  absl::StatusOr<std::unique_ptr<ckptd::Session>> session = ckptd::Session::Open();
  if (!session.ok()) return std::fprintf(stderr, "%s\n", session.status().ToString().c_str()), 1;

  int64_t step = 0;
  auto latest = (*session)->Latest();
  if (!latest.ok()) return std::fprintf(stderr, "%s\n", latest.status().ToString().c_str()), 1;
  if (latest->has_value()) {
    auto target =
        ckptd::WholeTarget("weights", ckptd::DType::kFloat32, {weights.size()}, weights.data());
    auto load = (*session)->Load((*latest)->id, {target});
    auto report = load.ok() ? load->Wait(absl::Minutes(1)) : load.status();
    if (!report.ok()) return std::fprintf(stderr, "%s\n", report.status().ToString().c_str()), 1;
    step = report->checkpoint.step;
  }
  for (int64_t end = step + 100; step < end;) {
    for (float& weight : weights) weight += 1;  // Train.
    if (++step % 10 != 0) continue;
    auto tensor =
        ckptd::WholeTensor("weights", ckptd::DType::kFloat32, {weights.size()}, weights.data());
    auto save = (*session)->AsyncSave("step-" + std::to_string(step), step, {{tensor}, {}});
    if (!save.ok()) std::fprintf(stderr, "%s\n", save.status().ToString().c_str());
  }
  return (*session)->Close().ok() ? 0 : 1;
}

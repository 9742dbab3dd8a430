// The operators' requests, answered over a root in memory. The input is the number of the question
// (1 byte) and its message.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/ckptd/folder_queries.h"
#include "server/rpc/status_conversion.h"
#include "storage/base/check.h"
#include "storage/commit/delete_checkpoint.h"
#include "storage/commit/runner.h"
#include "storage/disk/sim_disk.h"
#include "storage/format/paths.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/properties.h"
#include "tests/fuzz/stored.h"
#include "tests/storage/commit/test_save.h"

namespace ckptd {
namespace {

void WriteFile(Disk& disk, const std::string& path, absl::string_view bytes) {
  for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    disk.MakeDir(path.substr(0, end), 0777).IgnoreError();
  }
  const absl::StatusOr<std::unique_ptr<File>> file = disk.Create(path, 0666);
  CKPT_CHECK(file.ok(), "a file is made");
  CKPT_CHECK(WriteAll(**file, 0, std::as_bytes(std::span(bytes.data(), bytes.size()))).ok(),
             "a file is written");
}

// A job with two checkpoints, an unfinished attempt and a failed one, and a job with one.
std::unique_ptr<SimDisk> MakeRoot() {
  auto disk = std::make_unique<SimDisk>();
  for (const auto& [name, bytes] : StoredSample().bytes_by_name) {
    WriteFile(*disk, Join(CheckpointDir("demo", "step-17"), name), bytes);
  }
  for (const char* job : {"demo", "job"}) {
    for (const std::string& folder : {AttemptsDir(job), RetiredDir(job), TrashDir(job)}) {
      WriteFile(*disk, Join(folder, "not ours"), "");
    }
    AttemptRecord record = MakeTestRecord("a/b", 30, 1);
    record.job = job;
    TestNode node = MakeTestNode(record, "a", {0});
    node.fragment.job = job;
    PlantTestCheckpoint(*disk, CheckpointDir(job, "a/b"), record, node);
  }
  AttemptRecord record = MakeTestRecord("x", 31, 1);
  record.job = "demo";
  WriteFile(*disk, Join(AttemptDir("demo", record.attempt), kRecordFile),
            EncodeAttemptRecord(record));
  ++record.attempt.sequence;
  Outcome outcome{.record = record,
                  .root_label = "default",
                  .failure = {absl::AbortedError("lost"), 0, "node", "stage"},
                  .ranks = {},
                  .ended = absl::UnixEpoch()};
  WriteFile(*disk, Join(FailedAttemptDir("demo", record.attempt), kOutcomeFile),
            EncodeOutcome(outcome));
  return disk;
}

// An answer arrives as it was sent: its texts are UTF-8.
template <typename Reply>
void CheckReply(const Reply& reply) {
  Reply again;
  CKPT_CHECK(again.ParseFromString(reply.SerializeAsString()), "an answer can be read");
}

// As the client sees it.
void CheckStatus(const absl::Status& status) {
  const grpc::Status sent = ToGrpc(status);
  CheckAnswer(absl::Status(static_cast<absl::StatusCode>(sent.error_code()), sent.error_message()),
              {absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound,
               absl::StatusCode::kFailedPrecondition, absl::StatusCode::kDataLoss});
}

std::vector<std::string> Ids(Disk& disk) {
  const absl::StatusOr<v1::ListReply> list = FolderQueries(disk, "", "/root").List("", false);
  CKPT_CHECK(list.ok() && list->damaged_size() == 0, "the root can be listed");
  std::vector<std::string> ids;
  for (const v1::Checkpoint& checkpoint : list->checkpoints()) {
    ids.push_back(checkpoint.job() + "/" + checkpoint.id());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

void Delete(Disk& disk, const v1::DeleteRequest& request) {
  const std::vector<std::string> before = Ids(disk);
  const absl::StatusOr<std::string> job = FolderQueries(disk, "", "/root").OneJob(request.job());
  CheckStatus(job.status());
  if (!job.ok()) return;
  std::vector<std::string> deleted;
  for (const std::string& id : request.ids()) {
    DeleteCheckpoint machine(
        {.job = *job, .checkpoint_id = id, .allow_newest = request.allow_newest()});
    ActionRunner(disk, nullptr).RunToEnd(machine);
    CheckStatus(machine.result().status());
    if (machine.result().ok()) deleted.push_back(*job + "/" + id);
  }
  std::sort(deleted.begin(), deleted.end());
  std::vector<std::string> gone;
  const std::vector<std::string> after = Ids(disk);
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                      std::back_inserter(gone));
  CKPT_CHECK(gone == deleted, "what was named is deleted, and nothing else");
  CKPT_CHECK(after.size() + gone.size() == before.size(), "nothing comes up");
  for (const std::string& id : gone) {
    CKPT_CHECK(request.allow_newest() || id == "demo/step-17", "the newest one stays");
  }
}

template <typename Reply>
void CheckAnswerOf(const absl::StatusOr<Reply>& reply) {
  CheckStatus(reply.status());
  if (reply.ok()) CheckReply(*reply);
}

void Ask(Disk& disk, uint64_t question, absl::string_view bytes) {
  FolderQueries queries(disk, "default", "/root");
  v1::ListRequest list;
  v1::ShowRequest show;
  v1::LatestRequest latest;
  v1::DescribeRequest describe;
  v1::VerifyRequest verify;
  v1::DeleteRequest remove;
  if (question == 0 && Input::Parse(bytes, list)) {
    CheckAnswerOf(queries.List(list.job(), list.failed()));
  } else if (question == 1 && Input::Parse(bytes, show)) {
    CheckAnswerOf(queries.Show(show.job(), show.name()));
  } else if (question == 2 && Input::Parse(bytes, latest)) {
    CheckAnswerOf(queries.Latest(latest.job()));
  } else if (question == 3 && Input::Parse(bytes, describe)) {
    const auto parts =
        queries.Describe(describe.job(), describe.checkpoint_id(), describe.tensor_glob());
    CheckStatus(parts.status());
    if (!parts.ok()) return;
    for (const v1::DescribeReply& part : *parts) CheckReply(part);
  } else if (question == 4 && Input::Parse(bytes, verify)) {
    const auto each = [](const v1::VerifyReply& reply) {
      CKPT_CHECK(reply.ok(), "what is asked for is whole");
      CheckReply(reply);
    };
    CheckStatus(queries.Verify(verify.job(), {verify.ids().begin(), verify.ids().end()}, each,
                               [](const std::string&) {}));
  } else if (question == 5 && Input::Parse(bytes, remove)) {
    Delete(disk, remove);
  }
}

void Run(const uint8_t* data, size_t size) {
  static const auto& root = *MakeRoot().release();
  static const auto& ids = *new std::vector<std::string>(Ids(*root.Clone()));
  const std::unique_ptr<SimDisk> disk = root.Clone();
  // Each id that is asked for may be an answer, with all that is stored. Files are read in large
  // pieces.
  const MemoryBound bound(size, 8000, kProtobufBytes + (64 << 20));
  Input input(data, size);
  const uint64_t question = input.Number(1) % 6;
  Ask(*disk, question, input.rest());
  CKPT_CHECK(question == 5 || Ids(*disk) == ids, "a question changes nothing");
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run(data, size);
  return 0;
}

// make_corpus FOLDER: writes the seeds of every target, one folder each, from the files and
// messages of a small checkpoint. Inputs that a fuzzer found are kept beside them and not written
// here.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/ckptd/v1/admin.pb.h"
#include "proto/ckptd/v1/checkpoint.pb.h"
#include "proto/ckptd/v1/side.pb.h"
#include "proto/ckptd/version.h"
#include "server/config.h"
#include "storage/base/check.h"
#include "storage/format/paths.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/stored.h"

namespace ckptd {
namespace {

constexpr size_t kChecksumBytes = 5;  // At the end of a record file.

void Write(const std::string& folder, absl::string_view target, absl::string_view name,
           absl::string_view bytes) {
  const std::filesystem::path path = std::filesystem::path(folder) / std::string(target);
  std::filesystem::create_directories(path);
  std::ofstream file(path / std::string(name), std::ios::binary);
  file << bytes;
  file.close();
  CKPT_CHECK(file.good(), "the seed is written");
}

std::string Number(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(number >> (8 * i)));
  return text;
}

std::string Sequence(const std::vector<std::string>& messages) {
  std::string text;
  for (const std::string& message : messages) {
    absl::StrAppend(&text, Number(message.size(), 2), message);
  }
  return text;
}

std::string WithoutChecksum(const std::string& file) {
  return file.substr(0, file.size() - kChecksumBytes);
}

void WriteRecords(const std::string& folder) {
  const SampleFiles& sample = StoredSample();
  Write(folder, "attempt_record", "sample.bin",
        WithoutChecksum(EncodeAttemptRecord(sample.record)));
  AttemptRecord record = sample.record;
  record.checkpoint_id = "a/b \xC3\xA9";
  record.step = -1;
  record.incarnation = "00c0ffee";
  record.replace = true;
  Write(folder, "attempt_record", "replace.bin", WithoutChecksum(EncodeAttemptRecord(record)));
  Write(folder, "manifest", "sample.bin", WithoutChecksum(EncodeManifest(sample.manifest)));
  Manifest manifest = sample.manifest;
  manifest.fragments.push_back({"node-b", FragmentFileName("node-b"), 100, 1});
  Write(folder, "manifest", "two_nodes.bin", WithoutChecksum(EncodeManifest(manifest)));
  Write(folder, "fragment", "sample.bin", WithoutChecksum(sample.fragments[0].bytes));
  Fragment fragment = sample.fragments[0].fragment;
  fragment.tensors.resize(1);
  fragment.items.resize(1);
  Write(folder, "fragment", "small.bin", WithoutChecksum(EncodeFragment(fragment)));
  Outcome outcome{.record = record,
                  .root_label = "default",
                  .failure = {absl::AbortedError("rank 1 was lost"), 1, "node-a", "stage"},
                  .ranks = {{0, "node-a", 17, "staged", 10, 10, 5}, {1, "", 0, "lost", 0, 0, 0}},
                  .ended = absl::FromUnixNanos(1)};
  Write(folder, "outcome", "sample.bin", WithoutChecksum(EncodeOutcome(outcome)));
  outcome.record = {};
  outcome.record.job = "demo";
  Write(folder, "outcome", "no_record.bin", WithoutChecksum(EncodeOutcome(outcome)));
}

void WriteHeaders(const std::string& folder) {
  for (const StoredFile& file : StoredFragments()[0].files) {
    const std::string& bytes = StoredSample().bytes_by_name.at(file.name);
    Write(folder, "shard_header",
          absl::StrCat(absl::StripSuffix(file.name, ".safetensors"), ".bin"),
          absl::StrCat(Number(file.bytes - file.header_bytes, 4),
                       bytes.substr(0, file.header_bytes)));
  }
  // Of other writers: not padded, no metadata, an unknown field.
  const std::string json = R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4],"more":[{}]},)"
                           R"("b":{"dtype":"F4","shape":[2,1],"data_offsets":[4,5]}})";
  Write(folder, "shard_header", "foreign.bin",
        absl::StrCat(Number(5, 4), Number(json.size(), 8), json));
}

void WriteConfigs(const std::string& folder) {
  Surroundings surroundings;
  surroundings.host_name = "host";
  surroundings.working_folder = "/srv";
  const absl::StatusOr<Config> config =
      ParseConfig({"--root", "/data", "--root", "fast=/nvme"}, surroundings);
  CKPT_CHECK(config.ok(), "the defaults are a configuration");
  Write(folder, "config", "defaults.toml", PrintConfigText(*config));
  Write(folder, "config", "some.toml",
        "# All kinds of values.\nroot = ['a=/x', \"b=y\\u00e9\"]\nkeep_last = 3\ndirect = true\n"
        "block_size = \"4MiB\"\njoin_timeout = \"1.5h\"\narena_limit = \"10%\"\n"
        "recheck = \"1/8\"\nlog_level = \"\"\"debug\"\"\"\n");
}

v1::PlanPart PartOf(const RankPlan& plan) {
  v1::PlanPart part;
  for (const TensorEntry& tensor : plan.tensors) Fill(tensor, *part.add_tensors());
  for (const ItemEntry& item : plan.items) Fill(item, *part.add_items());
  return part;
}

void WriteSaves(const std::string& folder) {
  v1::SaveRequest begin, resume, first, last;
  begin.mutable_begin()->set_checkpoint_id("step-17");
  begin.mutable_begin()->set_request_id("request");
  begin.mutable_begin()->set_step(17);
  begin.mutable_begin()->set_join_timeout_ms(1000);
  begin.mutable_begin()->set_on_existing(v1::ON_EXISTING_REPLACE);
  resume = begin;
  v1::Resume& state = *resume.mutable_begin()->mutable_resume();
  state.set_attempt("17-00c0ffee00c0ffee");
  state.add_ordinals(0);
  state.add_sealed()->add_unit_crc32c(7);
  for (int rank : {0, 1}) {
    *first.mutable_plan() = PartOf(StoredPlans()[rank]);
    last = first;
    first.mutable_plan()->clear_items();
    last.mutable_plan()->clear_tensors();
    last.mutable_plan()->set_last(true);
    Write(folder, "save_request", absl::StrCat("rank", rank, ".bin"),
          Sequence({(rank == 0 ? begin : resume).SerializeAsString(), first.SerializeAsString(),
                    last.SerializeAsString()}));
  }
}

v1::Want& AddWant(v1::LoadWants& wants, const StoredTensor& tensor) {
  v1::Want& want = *wants.add_wants();
  want.set_name(tensor.name);
  want.set_dtype(static_cast<uint32_t>(tensor.dtype));
  want.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  want.set_rank_local(tensor.rank_local.has_value());
  for (const StoredChunk& chunk : tensor.chunks) Fill(chunk.box, *want.add_boxes());
  return want;
}

void WriteLoads(const std::string& folder) {
  v1::LoadRequest begin, all, some;
  begin.mutable_begin()->set_checkpoint_id("step-17");
  begin.mutable_begin()->set_wait_ms(20);
  for (const StoredTensor& tensor : StoredFragments()[0].tensors) {
    AddWant(*all.mutable_wants(), tensor);
  }
  all.mutable_wants()->set_last(true);
  Write(folder, "load_request", "all.bin",
        Sequence({begin.SerializeAsString(), all.SerializeAsString()}));
  begin.mutable_begin()->set_partial(true);
  v1::Want& want = AddWant(*some.mutable_wants(), StoredFragments()[0].tensors[0]);
  want.mutable_boxes()->DeleteSubrange(1, want.boxes_size() - 1);
  want.mutable_boxes(0)->set_sizes(0, 1);
  some.mutable_wants()->add_wants()->set_name("missing");
  some.mutable_wants()->mutable_wants(1)->set_dtype(1);
  v1::LoadRequest last;
  last.mutable_wants()->set_last(true);
  Write(folder, "load_request", "some.bin",
        Sequence({begin.SerializeAsString(), some.SerializeAsString(), last.SerializeAsString()}));
}

template <typename Request>
void WriteQuestion(const std::string& folder, uint64_t number, absl::string_view name,
                   Request request) {
  request.set_job("demo");
  Write(folder, "admin_request", name,
        absl::StrCat(Number(number, 1), request.SerializeAsString()));
}

void WriteQuestions(const std::string& folder) {
  v1::ListRequest list;
  list.set_failed(true);
  WriteQuestion(folder, 0, "list.bin", list);
  v1::ShowRequest show;
  show.set_name("a/b");
  WriteQuestion(folder, 1, "show.bin", show);
  WriteQuestion(folder, 2, "latest.bin", v1::LatestRequest());
  v1::DescribeRequest describe;
  describe.set_checkpoint_id("step-17");
  describe.set_tensor_glob("*[a-o]?*");
  WriteQuestion(folder, 3, "describe.bin", describe);
  v1::VerifyRequest verify;
  verify.add_ids("step-17");
  WriteQuestion(folder, 4, "verify.bin", verify);
  v1::DeleteRequest remove;
  remove.add_ids("step-17");
  remove.add_ids("a/b");
  WriteQuestion(folder, 5, "delete.bin", remove);
}

std::string Packet(uint64_t descriptor, uint64_t shift, uint64_t size,
                   const v1::SideRequest& request) {
  return absl::StrCat(Number(descriptor, 1), Number(shift, 1), Number(size, 1),
                      Sequence({request.SerializeAsString()}));
}

void WritePackets(const std::string& folder) {
  v1::SideRequest hello, offer, get, window;
  hello.mutable_hello()->set_protocol(kProtocolVersion);
  hello.mutable_hello()->set_version("1");
  hello.mutable_hello()->set_job("demo");
  hello.mutable_hello()->set_rank(1);
  hello.mutable_hello()->set_world_size(2);
  offer.mutable_offer_arena()->set_block_bytes(1 << 20);
  offer.mutable_offer_arena()->set_block_count(4);
  get.mutable_get_arena();
  window.mutable_get_window()->set_load_id(1);
  Write(folder, "side_request", "arena.bin",
        absl::StrCat(Packet(1, 0, 0, hello), Packet(2, 20, 4, offer), Packet(0, 0, 0, get),
                     Packet(0, 0, 0, window)));
  // 32 TiB that take no memory.
  offer.mutable_offer_arena()->set_block_count(1 << 25);
  Write(folder, "side_request", "huge_arena.bin",
        absl::StrCat(Packet(1, 0, 0, hello), Packet(2, 45, 1, offer)));
  Write(folder, "side_request", "wrong_order.bin",
        absl::StrCat(Packet(0, 0, 0, get), Packet(4, 0, 0, hello), Packet(3, 20, 1, offer),
                     Packet(1, 0, 0, hello)));
}

int Main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  const std::string folder = argv[1];
  WriteRecords(folder);
  WriteHeaders(folder);
  WriteConfigs(folder);
  WriteSaves(folder);
  WriteLoads(folder);
  WriteQuestions(folder);
  WritePackets(folder);
  return 0;
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) { return ckptd::Main(argc, argv); }

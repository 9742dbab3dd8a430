#include "server/loads.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/parallel_read.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/base/memory_limits.h"
#include "storage/base/status.h"
#include "storage/base/units.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

// How often a checkpoint that moves while it is opened is looked for again.
constexpr int kFindTriesMax = 8;

}  // namespace

class Load : public std::enable_shared_from_this<Load> {
 public:
  Load(Loads& loads, uint64_t id, SessionInfo session, std::shared_ptr<Root> root,
       LoadRequest request, std::shared_ptr<LoadStream> stream)
      : loads_(loads),
        id_(id),
        session_(std::move(session)),
        root_(std::move(root)),
        request_(std::move(request)),
        stream_(std::move(stream)) {}
  ~Load();

  void Start();
  void Consumed(const std::vector<uint32_t>& blocks);
  void Drop() { stream_.reset(); }

  const SessionInfo& session() const { return session_; }
  bool Reads(const Root& root, const std::string& job, const AttemptName& attempt) const {
    if (root_.get() != &root || session_.job != job) return false;
    return looking_ || (plan_ != nullptr && checkpoint_.manifest.attempt == attempt);
  }
  const std::shared_ptr<Arena>& window() const { return window_; }
  Loads::Progress progress() const {
    return {session_.job, checkpoint_.id, session_.rank, plan_ == nullptr ? 0 : plan_->read_bytes,
            done_bytes_};
  }

 private:
  struct Planned {
    absl::Status status;
    CheckpointInfo checkpoint;
    std::shared_ptr<LoadPlan> plan;
    std::vector<std::shared_ptr<File>> files;  // As plan->files; null if nothing is read of it.
  };

  void FindAndPlan(const std::string& id);
  Planned FindAndPlanOnWorker(const std::string& id) const;
  absl::Status FindPlanAndOpen(const std::string& id, Planned& planned) const;
  absl::Status PlanAndOpen(Planned& planned) const;
  bool IsStillThere(const CheckpointInfo& checkpoint) const;
  absl::Status ReadItems(LoadPlan& plan, const std::string& folder) const;
  void OnPlanned(Planned planned);
  void TouchWindow(uint32_t block);
  void OnTouched(uint32_t block, const absl::Status& status);
  void ReadMore();
  absl::Status ReadBlock(const LoadRead& read, uint32_t block) const;
  std::string TensorsAt(const LoadRead& read, uint64_t offset, uint64_t bytes) const;
  void OnRead(const LoadRead& read, uint32_t block, const absl::Status& status);
  void Fail(const absl::Status& status);
  void End();

  Loads& loads_;
  const uint64_t id_;
  const SessionInfo session_;
  const std::shared_ptr<Root> root_;
  const LoadRequest request_;
  std::shared_ptr<LoadStream> stream_;
  bool looking_ = false;  // A worker finds and opens what is to be read.
  CheckpointInfo checkpoint_;
  std::shared_ptr<const LoadPlan> plan_;
  std::vector<std::shared_ptr<File>> files_;
  std::shared_ptr<Arena> window_;
  size_t next_read_ = 0;
  size_t open_reads_ = 0;                      // Started and not given back.
  std::map<uint32_t, uint64_t> filled_bytes_;  // By window block, until it is given back.
  uint64_t done_bytes_ = 0;
};

// Closing files and unmapping memory may take a while: not on the loop.
Load::~Load() {
  root_->readers().Post([files = std::move(files_), window = std::move(window_)] {});
}

void Load::Start() {
  std::string id = request_.checkpoint_id;
  if (id.empty() && !request_.restore_id.empty()) {
    auto found = loads_.restores_.find({session_.job, session_.incarnation, request_.restore_id});
    if (found != loads_.restores_.end()) id = found->second;
  }
  if (id.empty() || loads_.attempts_.FindInFlight(session_.job, id) == nullptr ||
      request_.wait <= absl::ZeroDuration()) {
    return FindAndPlan(id);
  }
  // In flight: its end, or the time-out, whatever comes first.
  auto going = std::make_shared<bool>(false);
  auto self = shared_from_this();
  auto timer = loads_.loop_.After(request_.wait, [self, id, going] {
    if (!std::exchange(*going, true)) self->FindAndPlan(id);
  });
  loads_.attempts_.Watch([self, id, going, timer] {
    if (*going) return true;
    if (self->loads_.attempts_.FindInFlight(self->session_.job, id) != nullptr) return false;
    *going = true;
    self->loads_.loop_.Cancel(timer);
    self->FindAndPlan(id);
    return true;
  });
}

void Load::FindAndPlan(const std::string& id) {
  looking_ = true;
  root_->readers().Post([self = shared_from_this(), id] {
    self->loads_.loop_.Post([self, planned = std::make_shared<Planned>(self->FindAndPlanOnWorker(
                                       id))] { self->OnPlanned(std::move(*planned)); });
  });
}

// A checkpoint may be replaced or deleted meanwhile. Once all its files are open it cannot be lost
// any more; if it has moved until then, it is looked for again, at last in the trash, where its
// bytes stay as long as we look for them.
Load::Planned Load::FindAndPlanOnWorker(const std::string& id) const {
  Planned planned;
  std::optional<CheckpointInfo> seen;
  for (int tries = 0; tries < kFindTriesMax; ++tries) {
    planned = Planned();
    planned.status = FindPlanAndOpen(id, planned);
    bool found = !planned.checkpoint.id.empty();
    if (found && IsStillThere(planned.checkpoint)) return planned;
    if (found) {
      seen = planned.checkpoint;
      continue;
    }
    if (!seen || !absl::IsNotFound(planned.status)) return planned;
    Planned trashed;
    trashed.checkpoint = *seen;
    trashed.checkpoint.path = TrashedCheckpointDir(session_.job, seen->id, seen->manifest.attempt);
    trashed.status = PlanAndOpen(trashed);
    return trashed.status.ok() ? trashed : planned;
  }
  planned.status = absl::UnavailableError(absl::StrCat(
      "checkpoint \"", planned.checkpoint.id, "\" is replaced faster than it can be opened"));
  return planned;
}

absl::Status Load::FindPlanAndOpen(const std::string& id, Planned& planned) const {
  Disk& disk = root_->disk();
  ASSIGN_OR_RETURN(planned.checkpoint, id.empty() ? Latest(disk, session_.job)
                                                  : FindCheckpoint(disk, session_.job, id));
  return PlanAndOpen(planned);
}

absl::Status Load::PlanAndOpen(Planned& planned) const {
  Disk& disk = root_->disk();
  ASSIGN_OR_RETURN(std::vector<Fragment> fragments, LoadFragments(disk, planned.checkpoint));
  ASSIGN_OR_RETURN(LoadPlan plan, PlanLoad(fragments, request_.wants, session_.rank,
                                           request_.options, loads_.options_.block_bytes));
  if (request_.items) {
    RETURN_IF_ERROR(ReadItems(plan, planned.checkpoint.path));
  }
  planned.files.resize(plan.files.size());
  for (const LoadRead& read : plan.reads) {
    if (planned.files[read.file]) continue;
    ASSIGN_OR_RETURN(planned.files[read.file],
                     disk.OpenForRead(Join(planned.checkpoint.path, plan.files[read.file].name)));
  }
  planned.plan = std::make_shared<LoadPlan>(std::move(plan));
  return absl::OkStatus();
}

bool Load::IsStillThere(const CheckpointInfo& checkpoint) const {
  auto now = FindCheckpoint(root_->disk(), session_.job, checkpoint.id);
  return now.ok() && now->manifest.attempt == checkpoint.manifest.attempt &&
         now->path == checkpoint.path;
}

// Items too large for the fragment are in a shard.
absl::Status Load::ReadItems(LoadPlan& plan, const std::string& folder) const {
  for (size_t i = 0; i < plan.items.size(); ++i) {
    StoredItem& item = plan.items[i];
    if (plan.item_files[i].empty()) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<File> file,
                     root_->disk().OpenForRead(Join(folder, plan.item_files[i])));
    item.value.resize(item.bytes);
    absl::Status status =
        ReadAll(*file, item.file_offset_bytes, std::as_writable_bytes(std::span(item.value)));
    if (absl::IsOutOfRange(status)) {
      return absl::DataLossError(absl::StrCat("item \"", item.name, "\" in ",
                                              Join(folder, plan.item_files[i]), ": ",
                                              status.message()));
    }
    RETURN_IF_ERROR(status);
    if (Crc32c(item.value) != item.crc32c) {
      return absl::DataLossError(absl::StrCat("item \"", item.name, "\" in ",
                                              Join(folder, plan.item_files[i]),
                                              " differs from its checksum"));
    }
  }
  return absl::OkStatus();
}

void Load::OnPlanned(Planned planned) {
  looking_ = false;
  if (request_.checkpoint_id.empty() && !planned.checkpoint.id.empty()) {
    const std::string& latest =
        loads_.Resolve(session_, request_.restore_id, planned.checkpoint.id);
    if (latest != planned.checkpoint.id) return FindAndPlan(latest);  // Another rank was quicker.
  }
  if (absl::IsNotFound(planned.status) && !request_.checkpoint_id.empty() &&
      loads_.attempts_.FindInFlight(session_.job, request_.checkpoint_id) != nullptr) {
    planned.status = absl::FailedPreconditionError(
        absl::StrCat("checkpoint \"", request_.checkpoint_id, "\" is not committed yet"));
  }
  if (!planned.status.ok()) return Fail(planned.status);
  if (!stream_) return End();
  checkpoint_ = std::move(planned.checkpoint);
  plan_ = std::move(planned.plan);
  if (loads_.options_.on_let_go) loads_.options_.on_let_go();
  files_ = std::move(planned.files);
  uint64_t block_bytes = 0;
  for (const LoadRead& read : plan_->reads)
    block_bytes = std::max(block_bytes, RoundUp(read.bytes, kUnitBytes));
  auto blocks = static_cast<uint32_t>(std::min<uint64_t>(
      plan_->reads.size(),
      block_bytes == 0 ? 0
                       : std::max<uint64_t>(
                             loads_.options_.window_bytes / session_.world_size / block_bytes, 1)));
  if (blocks > 0) {
    auto window = Arena::Create(id_, block_bytes, blocks);
    if (!window.ok()) return Fail(WithContext(window.status(), "the window of a load"));
    window_ = *std::move(window);
  }
  if (loads_.options_.on_point) loads_.options_.on_point("load-planned");
  stream_->Planned(checkpoint_, *plan_, id_, block_bytes, blocks);
  if (blocks == 0) return ReadMore();
  TouchWindow(0);
}

// One block after the other, while the first are read into. Memory that is not there makes the
// window smaller; the first block must be.
void Load::TouchWindow(uint32_t block) {
  if (block == window_->block_count() || !stream_) return;
  root_->readers().Post([self = shared_from_this(), block] {
    absl::Status status = CheckMemoryRoom("the window of a load", self->window_->block_bytes());
    bool huge = self->loads_.options_.huge_pages;
    if (status.ok()) status = self->window_->TouchBlock(block, huge).status();
    self->loads_.loop_.Post([self, block, status] { self->OnTouched(block, status); });
  });
}

void Load::OnTouched(uint32_t block, const absl::Status& status) {
  if (!status.ok() && block == 0) return Fail(status);
  if (!status.ok()) {
    window_->NoMoreTouches();
    return ReadMore();
  }
  window_->Touched(block);
  ReadMore();
  TouchWindow(block + 1);
}

void Load::ReadMore() {
  if (!stream_) return End();
  while (next_read_ < plan_->reads.size()) {
    std::optional<uint32_t> block = window_->Grant();
    if (!block) return;
    const LoadRead& read = plan_->reads[next_read_++];
    ++open_reads_;
    root_->readers().Post([self = shared_from_this(), &read, block = *block] {
      absl::Status status = self->ReadBlock(read, block);
      self->loads_.loop_.Post([self, &read, block, status] { self->OnRead(read, block, status); });
    });
  }
  if (open_reads_ > 0) return;
  if (loads_.options_.on_point) loads_.options_.on_point("load-done");
  stream_->Done(0, done_bytes_);
  End();
}

absl::Status Load::ReadBlock(const LoadRead& read, uint32_t block) const {
  const std::string path = Join(checkpoint_.path, plan_->files[read.file].name);
  std::span<std::byte> memory = window_->Block(block);
  absl::Status status =
      ReadInParallel(*files_[read.file], read.file_offset_bytes, read.bytes, memory);
  if (absl::IsOutOfRange(status))
    return absl::DataLossError(absl::StrCat(path, ": ", status.message()));
  RETURN_IF_ERROR(status);
  uint64_t offset = 0;
  for (size_t unit = 0; unit < read.unit_bytes.size(); offset += read.unit_bytes[unit++]) {
    if (Crc32c(memory.subspan(offset, read.unit_bytes[unit])) == read.unit_crc32c[unit]) continue;
    uint64_t begin = read.file_offset_bytes + offset;
    return absl::DataLossError(absl::StrCat(
        path, ": bytes ", begin, " to ", begin + read.unit_bytes[unit],
        " differ from their checksum; they hold ", TensorsAt(read, begin, read.unit_bytes[unit])));
  }
  if (loads_.options_.on_point) loads_.options_.on_point("load-read");
  return absl::OkStatus();
}

// The wanted tensors in that range of the file, for an error.
std::string Load::TensorsAt(const LoadRead& read, uint64_t offset, uint64_t bytes) const {
  constexpr size_t kShownBytesMax = 1000;
  std::string names;
  for (const LoadPiece& piece : plan_->pieces) {
    if (names.size() > kShownBytesMax) return absl::StrCat(names, " and more");
    const Want& want = request_.wants[piece.want];
    uint64_t end =
        piece.file_offset_bytes + Elements(piece.stored.sizes) * Info(want.dtype).size_bytes;
    if (piece.file != read.file || piece.file_offset_bytes >= offset + bytes || end <= offset)
      continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", "\"", want.name, "\"");
  }
  return names.empty() ? "nothing that was asked for" : names;
}

void Load::OnRead(const LoadRead& read, uint32_t block, const absl::Status& status) {
  if (!status.ok()) return Fail(status);
  if (!stream_) return End();
  filled_bytes_[block] = read.bytes;
  stream_->Filled(block, read);
}

void Load::Consumed(const std::vector<uint32_t>& blocks) {
  if (plan_ == nullptr) {
    return Fail(absl::InvalidArgumentError("blocks are given back before the load is planned"));
  }
  for (uint32_t block : blocks) {
    auto filled = filled_bytes_.find(block);
    if (filled == filled_bytes_.end()) {
      return Fail(
          absl::InvalidArgumentError(absl::StrCat("window block ", block, " is not filled")));
    }
    window_->Abandon(block);
    --open_reads_;
    done_bytes_ += filled->second;
    filled_bytes_.erase(filled);
  }
  ReadMore();
}

void Load::Fail(const absl::Status& status) {
  if (stream_) stream_->Failed(Failure{status, session_.rank, loads_.options_.node, "load"});
  End();
}

void Load::End() {
  stream_.reset();
  loads_.Ended(id_);
}

Loads::Loads(ControlLoop& loop, Attempts& attempts, Options options)
    : loop_(loop), attempts_(attempts), options_(std::move(options)) {}

Loads::~Loads() = default;

uint64_t Loads::Start(const Session& session, std::shared_ptr<Root> root, LoadRequest request,
                      std::shared_ptr<LoadStream> stream) {
  uint64_t id = next_id_++;
  auto load = std::make_shared<Load>(*this, id, session.info, std::move(root), std::move(request),
                                     std::move(stream));
  loads_[id] = load;
  load->Start();
  return id;
}

void Loads::Consumed(uint64_t load_id, const std::vector<uint32_t>& window_blocks) {
  auto found = loads_.find(load_id);
  if (found == loads_.end()) return;
  std::shared_ptr<Load> load = found->second;
  load->Consumed(window_blocks);
}

void Loads::StreamGone(uint64_t load_id) {
  auto found = loads_.find(load_id);
  if (found == loads_.end()) return;
  std::shared_ptr<Load> load = found->second;
  load->Drop();
  Ended(load_id);
}

void Loads::Ended(uint64_t load_id) {
  loads_.erase(load_id);
  if (options_.on_let_go) options_.on_let_go();
}

bool Loads::Reads(const Root& root, const std::string& job, const AttemptName& attempt) const {
  return std::any_of(loads_.begin(), loads_.end(),
                     [&](const auto& entry) { return entry.second->Reads(root, job, attempt); });
}

absl::StatusOr<std::shared_ptr<Arena>> Loads::Window(const Session& session,
                                                     uint64_t load_id) const {
  auto found = loads_.find(load_id);
  if (found == loads_.end() || found->second->window() == nullptr ||
      found->second->session().rank != session.info.rank ||
      found->second->session().job != session.info.job) {
    return absl::NotFoundError(absl::StrCat("this session has no load ", load_id));
  }
  return found->second->window();
}

const std::string& Loads::Resolve(const SessionInfo& session, const std::string& restore_id,
                                  const std::string& latest) {
  if (restore_id.empty()) return latest;
  auto [restore, added] =
      restores_.try_emplace({session.job, session.incarnation, restore_id}, latest);
  if (added && restores_.size() > kRestoresKept) {
    restores_.erase(restore == restores_.begin() ? std::next(restore) : restores_.begin());
  }
  return restore->second;
}

void Loads::Forget(const std::string& job, const std::string& incarnation) {
  std::erase_if(restores_, [&](const auto& entry) {
    return std::get<0>(entry.first) == job && std::get<1>(entry.first) == incarnation;
  });
}

std::vector<Loads::Progress> Loads::Status() const {
  std::vector<Progress> result;
  for (const auto& [id, load] : loads_) result.push_back(load->progress());
  return result;
}

}  // namespace ckptd

#include "client/cpp/load_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/rpc_channel.h"
#include "client/cpp/wire.h"
#include "storage/base/clock.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd::inline client {
namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(30);
// How long the daemon may take to end the stream of a load that is done.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);
// Copies are shared among threads in groups of about this size, larger ones cut …
constexpr uint64_t kSharedCopyBytes = kMiB;
// … but smaller ones are made at once: to note them down would cost more.
constexpr uint64_t kNotedCopyBytesMin = 4 * kKiB;

}  // namespace

LoadRun::LoadRun(std::shared_ptr<Connection> connection, std::string id,
                 std::vector<TensorTarget> targets, LoadOptions options, ForkGuard& guard,
                 WorkerPool& pool)
    : connection_(std::move(connection)),
      id_(std::move(id)),
      targets_(std::move(targets)),
      options_(std::move(options)),
      guard_(guard),
      pool_(pool),
      progress_(std::make_shared<LoadProgress>()),
      call_(connection_) {
  for (const TensorTarget& target : targets_) {
    std::vector<StridedView>& views = views_.emplace_back();
    for (const BoxTarget& box : target.boxes) {
      views.emplace_back(static_cast<std::byte*>(box.data), box.box.sizes,
                         Info(target.dtype).size_bytes, box.strides_bytes);
    }
  }
}

void LoadRun::Cancel() {
  cancelled_ = true;
  call_.context().TryCancel();
}

void LoadRun::Run() {
  const absl::Duration begun = SystemClock().Monotonic();
  std::unique_ptr<Stream> stream;
  {
    const Connection::Call::Limit limit(call_, options_.progress_timeout);
    stream = connection_->stub().Load(&call_.context());
  }
  absl::Status status = Converse(*stream);
  const bool stalled = call_.stalled();
  if (!status.ok()) call_.context().TryCancel();
  absl::Status end;
  {
    const Connection::Call::Limit limit(call_, kEndTimeout);
    if (status.ok() && done_) stream->WritesDone();
    end = FromGrpc(stream->Finish());
  }
  if (status.ok() && !done_) {
    status = end.ok() ? absl::UnavailableError("the daemon ended the load too early") : end;
  }
  // The daemon finds a wrong byte in a block; others may have come before.
  const bool undefined = touched_ || (window_ != nullptr && absl::IsDataLoss(status));
  window_ = nullptr;
  if (status.ok() && done_) {
    // However the stream ended.
  } else if (stalled) {
    status = absl::DeadlineExceededError(
        absl::StrCat("nothing came for ", absl::FormatDuration(options_.progress_timeout)));
  } else if (absl::IsCancelled(status) && connection_->lost() && !cancelled_) {
    status = absl::UnavailableError("the connection to the daemon ended");
  }
  if (!status.ok()) {
    progress_->Finish(
        WithContext(status, absl::StrCat("load ", id_.empty() ? "latest" : id_,
                                         undefined ? " (the targets are undefined now)" : "")));
    return;
  }
  report_.seconds = absl::ToDoubleSeconds(SystemClock().Monotonic() - begun);
  progress_->Finish(std::move(report_));
}

absl::Status LoadRun::Converse(Stream& stream) {
  v1::LoadReply reply;
  bool open;
  {
    const Connection::Call::Limit limit(call_, options_.wait + options_.progress_timeout);
    open = stream.Write(Begin());
    v1::LoadRequest request;
    ForEachWantsPart(targets_, [&](v1::LoadWants& wants) {
      request.mutable_wants()->Swap(&wants);
      open = open && stream.Write(request);
      request.mutable_wants()->Swap(&wants);
      return open;
    });
    open = stream.Read(&reply);  // Even if it broke: it may have said why.
  }
  while (open) {
    RETURN_IF_ERROR(Handle(reply, stream));
    if (done_) break;
    const Connection::Call::Limit limit(call_, options_.progress_timeout);
    open = stream.Read(&reply);
  }
  return absl::OkStatus();
}

v1::LoadRequest LoadRun::Begin() const {
  v1::LoadRequest request;
  v1::LoadBegin* begin = request.mutable_begin();
  begin->set_checkpoint_id(id_);
  if (id_.empty()) begin->set_restore_id(options_.restore_id);
  begin->set_partial(options_.partial);
  begin->set_strict(options_.strict);
  begin->set_wait_ms(absl::ToInt64Milliseconds(options_.wait));
  begin->set_items(options_.items);
  return request;
}

absl::Status LoadRun::Handle(const v1::LoadReply& reply, Stream& stream) {
  switch (reply.message_case()) {
    case v1::LoadReply::kPlan:
      return HandlePlan(reply.plan());
    case v1::LoadReply::kFilled: {
      RETURN_IF_ERROR(HandleFilled(reply.filled()));
      v1::LoadRequest request;
      request.mutable_consumed()->add_window_blocks(reply.filled().window_block());
      const Connection::Call::Limit limit(call_, options_.progress_timeout);
      stream.Write(request);  // If it fails, so does the next read.
      return absl::OkStatus();
    }
    case v1::LoadReply::kDone:
      done_ = true;
      report_.memory_bytes = reply.done().memory_bytes();
      report_.disk_bytes = reply.done().disk_bytes();
      return absl::OkStatus();
    case v1::LoadReply::kFailed:
      return FromProto(reply.failed()).status;
    case v1::LoadReply::MESSAGE_NOT_SET:
      break;  // Of a newer daemon.
  }
  return absl::OkStatus();
}

absl::Status LoadRun::HandlePlan(const v1::LoadPlan& plan) {
  if (plan.has_checkpoint()) report_.checkpoint = FromProto(plan.checkpoint());
  for (const v1::LoadPiece& piece : plan.pieces()) RETURN_IF_ERROR(AddPiece(piece));
  for (const v1::ItemEntry& item : plan.items()) {
    if (Crc32c(item.value()) != item.crc32c()) {
      return absl::DataLossError(
          absl::StrCat("item ", QuoteName(item.name()), " does not have its checksum"));
    }
    report_.items.push_back(
        {item.name(), static_cast<ItemKind>(item.kind()), item.rank_local(), item.value()});
  }
  report_.missing.insert(report_.missing.end(), plan.missing().begin(), plan.missing().end());
  report_.extra.insert(report_.extra.end(), plan.extra().begin(), plan.extra().end());
  if (!plan.last() || pieces_.empty()) return absl::OkStatus();
  for (auto& [file, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return a.file_offset_bytes < b.file_offset_bytes;
    });
  }
  return OpenWindow(plan);
}

absl::Status LoadRun::AddPiece(const v1::LoadPiece& piece) {
  if (piece.want() >= targets_.size() || piece.box() >= targets_[piece.want()].boxes.size()) {
    return absl::InternalError("ckptd plans a region that nobody asked for");
  }
  const TensorTarget& target = targets_[piece.want()];
  Piece added;
  added.file_offset_bytes = piece.file_offset_bytes();
  added.stored = FromProto(piece.stored());
  added.wanted = &target.boxes[piece.box()].box;
  added.element_bytes = Info(target.dtype).size_bytes;
  added.view = &views_[piece.want()][piece.box()];
  if (!CheckInside(added.stored, target.shape).ok() ||
      Intersect(added.stored, *added.wanted) != *added.wanted) {
    return absl::InternalError(absl::StrCat("ckptd plans tensor ", QuoteName(target.name),
                                            " from a chunk that does not hold the region"));
  }
  added.stored_bytes = Elements(added.stored.sizes) * added.element_bytes;
  if (added.view->bytes() > 0) pieces_[piece.file()].push_back(std::move(added));
  return absl::OkStatus();
}

absl::Status LoadRun::OpenWindow(const v1::LoadPlan& plan) {
  v1::SideRequest request;
  request.mutable_get_window()->set_load_id(plan.load_id());
  auto reply =
      connection_->side().Call(request, -1, std::min(kAnswerTimeout, options_.progress_timeout));
  window_gone_ = absl::IsNotFound(reply.status());
  if (window_gone_) return absl::OkStatus();  // The load has failed already; the stream says why.
  if (!reply.ok()) return reply.status();
  window_block_bytes_ = plan.window_block_bytes();
  ASSIGN_OR_RETURN(
      window_, SharedMemory::Map(std::move(reply->fd), window_block_bytes_ * plan.window_blocks(),
                                 false, guard_));
  return absl::OkStatus();
}

absl::Status LoadRun::HandleFilled(const v1::Filled& filled) {
  if (window_gone_) return absl::OkStatus();
  if (window_ == nullptr || filled.bytes() > window_block_bytes_ ||
      filled.window_block() >= window_->bytes().size() / window_block_bytes_) {
    return absl::InternalError("ckptd fills a window block that there is not");
  }
  touched_ = true;
  const std::span<const std::byte> content =
      window_->bytes().subspan(filled.window_block() * window_block_bytes_, filled.bytes());
  const std::vector<Piece>& pieces = pieces_[filled.file()];
  // Stored chunks of a file do not overlap, so their ends are in order, too.
  auto piece = std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& p) {
    return p.file_offset_bytes + p.stored_bytes <= filled.file_offset_bytes();
  });
  std::vector<Copy> later;
  for (; piece != pieces.end() &&
         piece->file_offset_bytes < filled.file_offset_bytes() + filled.bytes();
       ++piece) {
    CopyPiece(*piece, filled, content, later);
  }
  CopyAll(later);
  return absl::OkStatus();
}

void LoadRun::CopyAll(const std::vector<Copy>& copies) {
  std::vector<size_t> groups;  // Where each begins.
  uint64_t group_bytes = kSharedCopyBytes;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (group_bytes >= kSharedCopyBytes) {
      groups.push_back(i);
      group_bytes = 0;
    }
    group_bytes += copies[i].from.size();
  }
  const size_t count = groups.size();
  groups.push_back(copies.size());
  pool_.Run(count, [&](size_t group) {
    for (size_t i = groups[group]; i < groups[group + 1]; ++i) {
      copies[i].view->Scatter(copies[i].offset, copies[i].from);
    }
  });
}

void LoadRun::CopyPiece(const Piece& piece, const v1::Filled& filled,
                        std::span<const std::byte> content, std::vector<Copy>& later) const {
  const uint64_t filled_end = filled.file_offset_bytes() + filled.bytes();
  ForEachRun(piece.stored, *piece.wanted, piece.element_bytes,
             [&](uint64_t stored, uint64_t wanted, uint64_t bytes) {
               const uint64_t run = piece.file_offset_bytes + stored;
               const uint64_t begin = std::max(run, filled.file_offset_bytes());
               const uint64_t end = std::min(run + bytes, filled_end);
               for (uint64_t at = begin; at < end; at += kSharedCopyBytes) {
                 const uint64_t part = std::min(end - at, kSharedCopyBytes);
                 const Copy copy{piece.view, wanted + (at - run),
                                 content.subspan(at - filled.file_offset_bytes(), part)};
                 if (part < kNotedCopyBytesMin) {
                   copy.view->Scatter(copy.offset, copy.from);
                 } else {
                   later.push_back(copy);
                 }
               }
             });
}

}  // namespace ckptd::inline client

#include "storage/catalog/verify.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

class CheckpointCheck {
 public:
  CheckpointCheck(Disk& disk, const CheckpointInfo& info,
                  const std::function<bool(uint64_t)>& progress)
      : disk_(disk), info_(info), progress_(progress) {}

  VerifyResult Run() {
    if (!info_.status.ok()) {
      Add(kManifestFile, "", info_.status.message());
      return std::move(result_);
    }
    ReadFragments();
    CompareManifest();
    for (const FragmentFile& file : fragments_) {
      CheckItems(file);
      for (size_t i = 0; i < file.fragment.files.size() && GoesOn(); ++i) {
        CheckShard(
            disk_, info_.path, file.fragment, i, [this](uint64_t bytes) { return Advance(bytes); },
            result_.errors);
      }
    }
    return std::move(result_);
  }

 private:
  bool GoesOn() const { return !result_.cancelled && result_.errors.size() < kVerifyErrorsMax; }

  bool Advance(uint64_t bytes) {
    result_.bytes += bytes;
    if (progress_ && !progress_(result_.bytes)) result_.cancelled = true;
    return GoesOn();
  }

  void Add(absl::string_view file, absl::string_view tensor, absl::string_view message) {
    result_.errors.push_back({.file = std::string(file),
                              .tensor = std::string(tensor),
                              .message = std::string(message)});
  }

  void ReadFragments() {
    for (const FragmentRef& ref : info_.manifest.fragments) {
      absl::StatusOr<std::string> bytes =
          ReadSmallFile(disk_, Join(info_.path, ref.file), kRecordFileBytesMax);
      if (!bytes.ok()) {
        Add(ref.file, "", bytes.status().message());
        continue;
      }
      if (bytes->size() != ref.bytes || Crc32c(*bytes) != ref.crc32c) {
        Add(ref.file, "", "size or checksum is not what the manifest says");
        continue;
      }
      absl::StatusOr<Fragment> fragment = DecodeFragment(*bytes);
      if (!fragment.ok()) {
        Add(ref.file, "", fragment.status().message());
        continue;
      }
      result_.bytes += bytes->size();
      fragments_.push_back({ref.file, *std::move(bytes), *std::move(fragment)});
    }
  }

  // The manifest is a function of record and fragments; without all of them it cannot be compared.
  void CompareManifest() {
    if (fragments_.size() != info_.manifest.fragments.size()) return;
    absl::StatusOr<Manifest> manifest = MakeManifest(info_.record, fragments_);
    if (!manifest.ok()) return Add(kManifestFile, "", manifest.status().message());
    if (EncodeManifest(*manifest) != EncodeManifest(info_.manifest)) {
      Add(kManifestFile, "", "it is not the manifest of this record and these fragments");
    }
  }

  // Small items lie in the fragment itself.
  void CheckItems(const FragmentFile& file) {
    for (const StoredItem& item : file.fragment.items) {
      if (item.bytes > kInlineItemBytesMax) continue;
      if (item.value.size() != item.bytes || Crc32c(item.value) != item.crc32c) {
        Add(file.file_name, item.name, "the checksum of the item differs");
      }
    }
  }

  Disk& disk_;
  const CheckpointInfo& info_;
  const std::function<bool(uint64_t)>& progress_;
  std::vector<FragmentFile> fragments_;
  VerifyResult result_;
};

}  // namespace

VerifyResult Verify(Disk& disk, const CheckpointInfo& info,
                    const std::function<bool(uint64_t bytes)>& progress) {
  return CheckpointCheck(disk, info, progress).Run();
}

}  // namespace ckptd

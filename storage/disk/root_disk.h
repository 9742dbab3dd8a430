// The Disk of a real file system: a RootFolder for the calls, a TransferEngine for the transfers.
#ifndef CKPTD_STORAGE_DISK_ROOT_DISK_H_
#define CKPTD_STORAGE_DISK_ROOT_DISK_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "storage/disk/disk.h"
#include "storage/disk/root_folder.h"
#include "storage/disk/transfer_engine.h"

namespace ckptd {

// `direct` says whether aligned transfers go around the page cache, `direct_reason` why (for
// Disk::Facts).
std::unique_ptr<Disk> MakeRootDisk(RootFolder root, bool direct, std::string direct_reason,
                                   std::unique_ptr<TransferEngine> engine);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_ROOT_DISK_H_

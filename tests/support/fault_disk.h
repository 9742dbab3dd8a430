// FaultDisk is a disk that does what a fault plan says, and what the disk below it does otherwise.
//
// Every call and every transfer is one operation of fault_plan.h; Space, Close and AttachMemory are
// none (they come by the clock, not by what is done). An error is returned instead of the
// operation, with the errno and a text like the true one. Delays, rates and errors of transfers
// never block the thread that started them; they are reported from a thread of this disk. A
// transfer that hangs is never reported; its owner may be destroyed all the same. A call that hangs
// holds its thread until the process ends.
#ifndef CKPTD_TESTS_SUPPORT_FAULT_DISK_H_
#define CKPTD_TESTS_SUPPORT_FAULT_DISK_H_

#include <memory>

#include "storage/disk/disk.h"
#include "tests/support/fault_plan.h"

namespace ckptd {

// `injector` outlives the disk.
std::unique_ptr<Disk> MakeFaultDisk(std::unique_ptr<Disk> disk, FaultInjector& injector);

}  // namespace ckptd

#endif  // CKPTD_TESTS_SUPPORT_FAULT_DISK_H_

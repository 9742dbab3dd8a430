// BuildFragment: the node's fragment of what its ranks have written. A pure function.
#ifndef CKPTD_SERVER_FRAGMENT_BUILDER_H_
#define CKPTD_SERVER_FRAGMENT_BUILDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/rank_save.h"
#include "storage/format/records.h"
#include "storage/plan/assignment.h"

namespace ckptd {

// `ranks`: by rank, all of them written, with plan, ordinals, layout, shards and block checksums.
// Of a part that two ranks wrote, the lowest rank's is recorded.
Fragment BuildFragment(const AttemptRecord& record, const std::string& node,
                       const std::map<uint32_t, RankSave>& ranks);

}  // namespace ckptd

#endif  // CKPTD_SERVER_FRAGMENT_BUILDER_H_

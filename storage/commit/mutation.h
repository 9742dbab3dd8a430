// Mutations are deliberate mistakes in the protocol, one at a time, which the simulator must catch:
// the proof that it looks.
//
// They exist only where CKPTD_MUTATIONS is defined (a library for tests). In every other build
// Mutated() is the constant false, and the compiler drops the branch.
#ifndef CKPTD_STORAGE_COMMIT_MUTATION_H_
#define CKPTD_STORAGE_COMMIT_MUTATION_H_

namespace ckptd {

enum class Mutation {
  kNone,
  kSkipRecordSync,            // BeginAttempt: ATTEMPT.pb is not synced …
  kSkipAttemptFolderSync,     // … nor its entry in attempts/<attempt> …
  kSkipAttemptsSync,          // … nor that of the attempt in attempts/.
  kSkipShardSync,             // FinishNode: the shards are not synced …
  kSkipFragmentSync,          // … nor the fragment …
  kSkipFolderSync,            // … nor the folder that names them.
  kDurableBeforeSync,         // FinishNode says durable, then syncs.
  kSkipManifestSync,          // Decide: the manifest is not synced …
  kSkipManifestFolderSync,    // … nor the folder after its rename …
  kSkipCheckpointsSync,       // … nor checkpoints/ after the commit rename …
  kSkipAttemptsSyncOnCommit,  // … nor attempts/.
  kSkipFailedSync,            // Decide: failed/ is not synced after the abort rename …
  kSkipAttemptsSyncOnAbort,   // … nor attempts/.
  kToldBeforeSync,            // Decide tells committed before the parents are synced.
  kCommitBeforeLastFragment,  // Decide commits what it finds.
  kAbortByDelete,             // Decide deletes the attempt's files where they are.
  kFailedWithoutProof,        // Decide takes ENOENT for failed.
  kListBeforeParentsSynced,   // Recover does not sync the folders that it then lists.
  kDeleteWhatIsThere,         // DeleteCheckpoint does not look again at what it has taken away.
  kKeepNewestUnsynced,        // DeleteCheckpoint does not sync the newer one that it has seen.
  kNewerMayBeDamaged,         // DeleteCheckpoint counts a newer one by its manifest alone.
  kEmptyTrashBeforeSync,      // EmptyTrash does not sync the rename that brought the folder there.
  kCount,
};

#ifdef CKPTD_MUTATIONS
inline Mutation active_mutation = Mutation::kNone;  // Set by one test, on one thread.
inline bool Mutated(Mutation mutation) { return mutation == active_mutation; }
#else
constexpr bool Mutated(Mutation) { return false; }
#endif

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_MUTATION_H_

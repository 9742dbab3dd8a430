#include "server/daemon.h"

#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/ckptd/default_paths.h"
#include "proto/ckptd/version.h"
#include "server/core.h"
#include "server/locks.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/checkpoint_service.h"
#include "server/rpc/side_socket.h"
#include "storage/base/memory_limits.h"
#include "storage/base/status.h"
#include "storage/base/unique_fd.h"

namespace ckptd {
namespace {

DiskOptions::Switch ToSwitch(Choice choice) {
  switch (choice) {
    case Choice::kAuto:
      return DiskOptions::Switch::kAuto;
    case Choice::kOn:
      return DiskOptions::Switch::kOn;
    case Choice::kOff:
      return DiskOptions::Switch::kOff;
  }
  return DiskOptions::Switch::kAuto;
}

DiskOptions ToDiskOptions(const Config& config) {
  DiskOptions options;
  options.engine = config.io == IoEngine::kUring   ? DiskOptions::Engine::kUring
                   : config.io == IoEngine::kPosix ? DiskOptions::Engine::kPosix
                                                   : DiskOptions::Engine::kAuto;
  options.direct = ToSwitch(config.direct);
  options.fixed_buffers = ToSwitch(config.fixed_buffers);
  return options;
}

// Makes the folder and those above it that are missing, and syncs the parent of each: a fresh root
// must outlive a power cut.
absl::Status MakeFolders(const std::filesystem::path& path, mode_t mode) {
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) return absl::OkStatus();
  RETURN_IF_ERROR(MakeFolders(path.parent_path(), mode));
  RETURN_IF_ERROR(MakeFolder(path.string(), mode));
  UniqueFd parent(open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent.valid() || fsync(parent.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("fsync ", path.parent_path().string()));
  }
  return absl::OkStatus();
}

// Makes the root's folder where it is missing, and proves that it can be written.
absl::Status PrepareRoot(const std::string& path, mode_t mode) {
  absl::Status made = MakeFolders(path, mode);
  if (StatusErrno(made) == ENOTDIR) made = absl::FailedPreconditionError(made.message());
  if (!made.ok()) return WithContext(made, absl::StrCat("root ", path));
  if (access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
    return ErrnoStatus(errno, absl::StrCat("root ", path));
  }
  return absl::OkStatus();
}

constexpr std::chrono::seconds kCloseGrace(1);  // For answers that are on their way.

class RunningDaemon : public Daemon {
 public:
  explicit RunningDaemon(Logger& logger) : logger_(logger) {}

  ~RunningDaemon() override {
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + kCloseGrace);
    side_socket_.reset();
    server_.reset();
  }

  absl::Status Open(Options given) {
    options_ = std::move(given);
    umask_ = umask(0);  // Before any other thread makes a file.
    umask(umask_);
    const Config& config = options_.config;
    RETURN_IF_ERROR(CheckSocketPath(config.socket));
    ASSIGN_OR_RETURN(SocketLock lock, SocketLock::Acquire(config.socket));
    socket_lock_ = std::make_unique<SocketLock>(std::move(lock));
    std::vector<Roots::Source> roots;
    for (const RootConfig& root : config.roots) {
      roots.push_back({root.label, root.path, [this, &root] { return OpenRoot(root); }});
    }
    core_ = std::make_unique<Core>(Core::Options{.config = config,
                                                 .roots = std::move(roots),
                                                 .arena_limit_bytes = ArenaLimitBytes(
                                                     config.arena_limit, config.read_window_bytes),
                                                 .on_point = options_.on_point},
                                   logger_);
    RETURN_IF_ERROR(core_->StartRoots());
    RETURN_IF_ERROR(OpenServer(config.socket));
    ASSIGN_OR_RETURN(side_socket_, SideSocket::Listen(*core_, SideSocketPath(config.socket)));
    server_->GetHealthCheckService()->SetServingStatus(true);
    logger_.Info("ready", {{"version", kVersion},
                           {"node", config.node},
                           {"socket", config.socket},
                           {"pid", getpid()}});
    return absl::OkStatus();
  }

  bool RootsAreStarting() const { return core_ != nullptr && core_->roots().AnyStarting(); }

  void Drain(std::function<void()> done) override {
    server_->GetHealthCheckService()->SetServingStatus(false);
    core_->loop().Post([this, done = std::move(done)]() mutable { core_->Drain(std::move(done)); });
  }

  void Close() override {
    // Answers first: a client whose side connection ends listens to nothing more.
    auto closed = std::make_shared<std::promise<void>>();
    std::future<void> wait = closed->get_future();
    std::thread([this, closed] {
      server_->Shutdown(std::chrono::system_clock::now() + kCloseGrace);
      closed->set_value();
    }).detach();
    wait.wait_for(2 * kCloseGrace);
    side_socket_.reset();
  }

 private:
  // On the root's own thread.
  absl::StatusOr<std::shared_ptr<Root>> OpenRoot(const RootConfig& root) {
    RETURN_IF_ERROR(PrepareRoot(root.path, 0777 & ~umask_));
    ASSIGN_OR_RETURN(NodeLock lock, NodeLock::Acquire(root.path, options_.config.node));
    if (!lock.warning().empty())
      logger_.Warning("node.lock", {{"root", root.label}, {"why", lock.warning()}});
    {
      std::lock_guard guard(node_locks_mutex_);
      node_locks_.push_back(std::move(lock));
    }
    DiskOptions disk_options = ToDiskOptions(options_.config);
    absl::StatusOr<std::unique_ptr<Disk>> disk = options_.open_disk
                                                     ? options_.open_disk(root.path, disk_options)
                                                     : OpenDisk(root.path, disk_options);
    if (!disk.ok()) return WithContext(disk.status(), absl::StrCat("root ", root.path));
    DiskFacts facts = (*disk)->Facts();
    logger_.Info("root.opened", {{"root", root.label},
                                 {"path", root.path},
                                 {"io", facts.engine},
                                 {"io_reason", facts.engine_reason},
                                 {"direct", facts.direct},
                                 {"file_system", facts.file_system}});
    if (options_.config.io == IoEngine::kAuto && facts.engine != "uring") {
      logger_.Warning("root.slower", {{"root", root.label},
                                      {"why", absl::StrCat("no io_uring: ", facts.engine_reason)},
                                      {"advice", "see ckptctl doctor, or set --io posix"}});
    }
    return std::make_shared<Root>(root.label, root.path, *std::move(disk));
  }

  absl::Status OpenServer(const std::string& socket) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    checkpoint_service_ = std::make_unique<CheckpointService>(*core_);
    admin_service_ = std::make_unique<AdminService>(*core_);
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.SetMaxSendMessageSize(kMessageBytesMax);
    builder.AddListeningPort(absl::StrCat("unix:", socket), grpc::InsecureServerCredentials());
    builder.RegisterService(checkpoint_service_.get());
    builder.RegisterService(admin_service_.get());
    mode_t before = umask(0177);  // The socket's mode is 0600.
    server_ = builder.BuildAndStart();
    umask(before);
    if (!server_) return absl::InternalError(absl::StrCat("gRPC cannot listen on ", socket));
    return absl::OkStatus();
  }

  Logger& logger_;
  Options options_;
  mode_t umask_ = 0;
  std::unique_ptr<SocketLock> socket_lock_;
  std::mutex node_locks_mutex_;
  std::vector<NodeLock> node_locks_;  // Of the roots, whose threads add them.
  std::unique_ptr<Core> core_;
  std::unique_ptr<CheckpointService> checkpoint_service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<SideSocket> side_socket_;
};

}  // namespace

uint64_t ArenaLimitBytes(const ArenaLimit& limit, uint64_t reserve_bytes) {
  if (limit.bytes > 0) return limit.bytes;
  return ArenaLimitOfPercent(limit.percent, reserve_bytes);
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(Options options, Logger& logger) {
  auto daemon = std::make_unique<RunningDaemon>(logger);
  absl::Status opened = daemon->Open(std::move(options));
  if (opened.ok()) return daemon;
  // The process ends next; a root that hangs would hold the destructor for ever.
  if (daemon->RootsAreStarting()) (void)daemon.release();
  return opened;
}

}  // namespace ckptd

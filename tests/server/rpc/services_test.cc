// What any gRPC tool finds on the daemon's socket: health and reflection.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

std::shared_ptr<grpc::Channel> ChannelTo(const TestSite& site) {
  return grpc::CreateChannel("unix:" + site.socket(), grpc::InsecureChannelCredentials());
}

std::chrono::system_clock::time_point Deadline() {
  return std::chrono::system_clock::now() + std::chrono::seconds(30);
}

// One request on the reflection service's stream, and its answer's bytes. The request is field 7
// (list_services), empty.
std::string ListServices(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  auto stream = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  auto next = [&] { return queue.Next(&tag, &ok) && ok; };
  stream->StartCall(nullptr);
  if (!next()) return "the call did not start";
  grpc::Slice request(std::string("\x3a\x00", 2));
  stream->Write(grpc::ByteBuffer(&request, 1), nullptr);
  if (!next()) return "the request was not sent";
  grpc::ByteBuffer reply;
  stream->Read(&reply, nullptr);
  if (!next()) return "no answer came";
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(reply.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return bytes;
}

TEST(Services, ReflectionNamesThemAll) {
  TestSite site;
  TestDaemon daemon(site);
  std::string names = ListServices(ChannelTo(site));
  for (const char* name :
       {"ckptd.v1.CheckpointService", "ckptd.v1.AdminService", "grpc.health.v1.Health"}) {
    EXPECT_NE(names.find(name), std::string::npos) << name << " is not in " << names;
  }
}

TEST(Services, HealthIsServingUntilTheDaemonDrains) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true, .flags = {"--drain-timeout", "20s"}});
  std::shared_ptr<grpc::Channel> channel = ChannelTo(site);
  auto health = grpc::health::v1::Health::NewStub(channel);
  auto check = [&] {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    grpc::health::v1::HealthCheckResponse reply;
    grpc::Status status = health->Check(&context, {}, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.status();
  };
  EXPECT_EQ(check(), grpc::health::v1::HealthCheckResponse::SERVING);
  // A save that the slow disk keeps in flight keeps the draining daemon alive.
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:float32:4194304"});
  ASSERT_TRUE(rank.Ok("fill 1"));
  site.SetFaults("write=rate:4MiB");
  ASSERT_TRUE(rank.Ok("save a 1"));
  daemon.process().Signal(SIGTERM);
  EXPECT_TRUE(
      Eventually([&] { return check() == grpc::health::v1::HealthCheckResponse::NOT_SERVING; }));
  EXPECT_EQ(rank.AwaitOutcome("a")["event"], "committed");
  EXPECT_EQ(daemon.process().AwaitEnd(), 0);
}

}  // namespace
}  // namespace ckptd

// A whole participant in C++: balls in free fall, explicit, the same as solver-kit/examples/balls.rs to the bit.
//
//   target/cpp/balls --listen 127.0.0.1:7401
//
// The physics is struct Balls. The rest is common to all participants: columns, the order of calls, and answers to the
// coordinator's questions before a step. docs/reference/protocol.md gives the reasons.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "amalgam/solver/v1/solver.grpc.pb.h"

namespace v1 = amalgam::solver::v1;
using grpc::Status;
using grpc::StatusCode;
using std::size_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using Vec = std::array<double, 3>;

namespace {

constexpr u32 VERSION = 2, NO_GROUP = 0xffffffff;
constexpr size_t CHUNK_BYTES = 512 << 10, MESSAGE_BYTES_MAX = 4 << 20, CELL_SET_BYTES_MAX = 64 << 20;
constexpr u64 ID_LIMIT = u64{1} << 48;
constexpr double SPEED_LIMIT = 1e12, MOMENTUM_LIMIT = 1e62;

Vec operator+(Vec a, Vec b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
Vec operator-(Vec a, Vec b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vec operator*(Vec a, double s) { return {a[0] * s, a[1] * s, a[2] * s}; }
double dot(Vec a, Vec b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
double length(Vec a) { return std::sqrt(dot(a, a)); }
Vec cross(Vec a, Vec b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

// A call that is refused.
struct Refused {
  StatusCode code;
  std::string text;
};
[[noreturn]] void invalid(std::string text) { throw Refused{StatusCode::INVALID_ARGUMENT, std::move(text)}; }
[[noreturn]] void early(std::string text) { throw Refused{StatusCode::FAILED_PRECONDITION, std::move(text)}; }

// ---------------------------------------------------------------------------------------------------------------------
// The physics.

struct Section {
  std::vector<Vec> positions, velocities;
  double mass = NAN, radius = NAN;
  bool self_collision = false;
};

struct Balls {
  std::vector<Vec> position, velocity;
  double mass, radius;
  bool self_collision;
  Vec gravity;

  Balls(const Section &section, Vec gravity)
      : position(section.positions), velocity(section.velocities), mass(section.mass), radius(section.radius),
        self_collision(section.self_collision), gravity(gravity) {
    velocity.resize(position.size(), Vec{});
  }

  // The momentum that a group of this many balls gets in a step [kg m/s].
  Vec momentum(size_t members, double dt) const {
    Vec sum{};
    for (size_t i = 0; i < members; i++) sum = sum + gravity * mass * dt;
    return sum;
  }

  // The velocity of a free ball at the end of a step [m/s].
  Vec free_velocity(size_t ball, double dt) const { return velocity[ball] + gravity * dt; }
};

// ---------------------------------------------------------------------------------------------------------------------
// The section: as much of TOML as it needs.

class Reader {
 public:
  explicit Reader(const std::string &text) : text_(text) {}

  Section read() {
    Section section;
    std::set<std::string> seen;
    for (skip(true); at_ < text_.size(); skip(true)) {
      const std::string key = word();
      if (!seen.insert(key).second) fail(key, "the key stands twice");
      expect('=');
      if (key == "positions") section.positions = vectors();
      else if (key == "velocities") section.velocities = vectors();
      else if (key == "mass") section.mass = number();
      else if (key == "radius") section.radius = number();
      else if (key == "self_collision") section.self_collision = flag();
      else fail(key, "there is no such key");
      skip(false);
      if (at_ < text_.size() && text_[at_] != '\n') fail(key, "the line goes on after the value");
    }
    if (!seen.count("positions")) fail("positions", "give the centres of the balls");
    if (!(section.mass >= 1e-50 && section.mass <= 1e50)) fail("mass", "give a positive mass in kg");
    if (!(section.radius >= 1e-30 && section.radius <= 1e12)) fail("radius", "give a positive radius in m");
    if (!section.velocities.empty() && section.velocities.size() != section.positions.size())
      fail("velocities", "give one velocity for each position, or none");
    return section;
  }

  struct Fault {
    std::string key, text;
  };

 private:
  [[noreturn]] void fail(std::string key, std::string text) { throw Fault{std::move(key), std::move(text)}; }
  void skip(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') while (at_ < text_.size() && text_[at_] != '\n') at_++;
      else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) at_++;
      else break;
    }
  }
  void expect(char c) {
    skip(c != '=');
    if (at_ >= text_.size() || text_[at_] != c) fail("", std::string("expected ") + c);
    at_++;
    skip(false);
  }
  bool next(char c) {
    skip(true);
    return at_ < text_.size() && text_[at_] == c && ++at_;
  }
  std::string word() {
    size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || strchr("_-+.", text_[at_])))
      at_++;
    if (start == at_) fail("", "expected a key or a value");
    return text_.substr(start, at_ - start);
  }
  double number() {
    std::string digits = word();
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    size_t used = 0;
    double value = NAN;
    try { value = std::stod(digits, &used); } catch (const std::exception &) { used = 0; }
    if (used != digits.size()) fail("", digits + " is no number");
    return value;
  }
  bool flag() {
    const std::string value = word();
    if (value != "true" && value != "false") fail("", "expected true or false");
    return value == "true";
  }
  std::vector<Vec> vectors() {
    std::vector<Vec> values;
    expect('[');
    while (!next(']')) {
      Vec value;
      expect('[');
      for (int axis = 0; axis < 3; axis++) {
        skip(true);
        value[axis] = number();
        if (!(std::abs(value[axis]) < 1e12)) fail("positions", "components must be finite and below 1e12");
        if (axis < 2) expect(',');
      }
      next(',');
      expect(']');
      values.push_back(value);
      if (!next(',')) {
        expect(']');
        break;
      }
    }
    return values;
  }

  const std::string &text_;
  size_t at_ = 0;
};

// google.rpc.Status with a google.rpc.BadRequest, by hand: Debian's packages have no messages for it.
std::string field(int number, const std::string &data) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  size_t size = data.size();
  for (; size >= 0x80; size >>= 7) out.push_back(static_cast<char>((size & 0x7f) | 0x80));
  out.push_back(static_cast<char>(size));
  return out + data;
}

Status section_status(const Reader::Fault &fault) {
  const std::string violations = field(1, field(1, fault.key) + field(2, fault.text));
  const std::string packed = field(1, "type.googleapis.com/google.rpc.BadRequest") + field(2, violations);
  const std::string text = fault.key + ": " + fault.text;
  const std::string code{1 << 3, static_cast<char>(StatusCode::INVALID_ARGUMENT)};
  return {StatusCode::INVALID_ARGUMENT, text, code + field(2, text) + field(3, packed)};
}

// ---------------------------------------------------------------------------------------------------------------------
// Columns.

using Room = std::map<std::string, size_t>;  // bytes that a column may hold

struct Columns {
  std::map<std::string, std::string> data;

  template <typename T>
  std::vector<T> take(const std::string &name, size_t count, bool uniform = false) const {
    static const std::string nothing;
    const auto found = data.find(name);
    const std::string &bytes = found == data.end() ? nothing : found->second;
    const bool one = uniform && count > 1 && bytes.size() == sizeof(T);
    if (bytes.size() != (one ? 1 : count) * sizeof(T)) invalid("column " + name + " has another length than announced");
    std::vector<T> values(one ? 1 : count);
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    if (one) values.resize(count, values[0]);
    return values;
  }
  std::vector<Vec> vectors(const std::string &name, size_t count, double limit, bool uniform = false) const {
    auto values = take<Vec>(name, count, uniform);
    for (const Vec &value : values)
      for (double x : value)
        if (!(std::abs(x) < limit)) invalid(name + " holds a number that is not finite or too large");
    return values;
  }
  std::vector<u64> ids(const std::string &name, size_t count) const {
    auto values = take<u64>(name, count);
    std::set<u64> seen;
    for (u64 id : values) {
      if (id >= ID_LIMIT) invalid(name + " holds an id that is not below 2^48");
      if (!seen.insert(id).second) invalid(name + ": an id stands twice");
    }
    return values;
  }
  std::set<u64> cells(const std::string &name) const {
    const auto found = data.find(name);
    std::set<u64> keys;
    u64 last = 0, gap = 0;
    int shift = 0;
    if (found != data.end()) {
      for (unsigned char byte : found->second) {
        if (shift > 56) invalid(name + ": a cell key does not fit 63 bits");
        gap |= static_cast<u64>(byte & 0x7f) << shift;
        shift += 7;
        if (byte & 0x80) continue;
        if (gap >> 63 || (last + gap) >> 63 || (gap == 0 && !keys.empty())) invalid(name + " is no set of cells");
        keys.insert(last += gap);
        gap = 0, shift = 0;
      }
    }
    if (shift) invalid(name + ": the last cell key is cut off");
    return keys;
  }
};

// Reads a stream. What the header does not call for is refused as soon as it arrives.
template <typename Stream, typename Message, typename Header>
Columns gather(Stream &stream, Message message, Header &header, const std::function<Room(const Header &)> &room_of) {
  Columns columns;
  Room room;
  bool has_header = false;
  while (stream.Read(&message)) {
    if (message.has_header()) {
      if (has_header) invalid("a second header in one stream");
      header = message.header();
      room = room_of(header);
      has_header = true;
    } else if (!has_header) {
      invalid("the stream ended without a header");
    }
    for (const auto &column : message.columns()) {
      const auto allowed = room.find(column.name());
      if (allowed == room.end()) invalid("column " + column.name().substr(0, 80) + " is none that the header calls for");
      std::string &bytes = columns.data[column.name()];
      bytes += column.data();
      if (bytes.size() > allowed->second) invalid("column " + column.name() + " holds more than was announced");
    }
  }
  if (!has_header) invalid("the stream ended without a header");
  return columns;
}

// An answer: the header in the first message, and columns cut where a message is full.
template <typename Message>
class Packets {
 public:
  template <typename Header>
  explicit Packets(const Header &header) : messages_(1) {
    *messages_[0].mutable_header() = header;
  }
  template <typename T>
  void put(const std::string &name, const std::vector<T> &values) {
    put_bytes(name, reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T));
  }
  void put_bytes(const std::string &name, const char *data, size_t size) {
    while (size > 0) {
      if (room_ == 0) messages_.emplace_back(), room_ = CHUNK_BYTES;
      const size_t piece = std::min(size, room_);
      auto *column = messages_.back().add_columns();
      column->set_name(name);
      column->set_data(data, piece);
      data += piece, size -= piece, room_ -= piece;
    }
  }
  template <typename Writer>
  void send(Writer &writer) const {
    for (const auto &message : messages_) writer.Write(message);
  }

 private:
  std::vector<Message> messages_;
  size_t room_ = CHUNK_BYTES;
};

// Cells: coordinates are raised by 2^20 and packed into a key, z first.
struct Cells {
  Vec origin;
  double cell_size;

  static Cells from(const v1::Lattice &lattice) {
    if (!(lattice.cell_size() > 0 && std::isfinite(lattice.cell_size()))) invalid("cell_size must be positive and finite");
    const Vec origin{lattice.origin().x(), lattice.origin().y(), lattice.origin().z()};
    for (double x : origin)
      if (!(std::abs(x) < 1e100)) invalid("origin must be finite");
    return {origin, lattice.cell_size()};
  }
  std::array<long, 3> cell(Vec x) const {
    std::array<long, 3> at;
    for (int axis = 0; axis < 3; axis++) {
      const double scaled = (x[axis] - origin[axis]) * (1.0 / cell_size);
      at[axis] = static_cast<long>(std::floor(std::clamp(scaled, -1048576.0, 1048575.0)));
    }
    return at;
  }
  // Calls `visit` with the key of each cell that a sphere's bounding box touches.
  template <typename Visit>
  void around(Vec x, double radius, Visit visit) const {
    const auto low = cell(x - Vec{radius, radius, radius}), high = cell(x + Vec{radius, radius, radius});
    for (long k = low[2]; k <= high[2]; k++)
      for (long j = low[1]; j <= high[1]; j++)
        for (long i = low[0]; i <= high[0]; i++)
          visit(static_cast<u64>(k + 1048576) << 42 | static_cast<u64>(j + 1048576) << 21 | static_cast<u64>(i + 1048576));
  }
};

std::string cells_to_bytes(const std::set<u64> &keys) {
  std::string out;
  u64 last = 0;
  for (u64 key : keys) {
    u64 gap = key - last;
    last = key;
    for (; gap >= 0x80; gap >>= 7) out.push_back(static_cast<char>((gap & 0x7f) | 0x80));
    out.push_back(static_cast<char>(gap));
  }
  return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// A run.

// Questions of the coordinator at the start of a step.
struct Wish {
  v1::Interest header;
  std::set<u64> cells;
  std::vector<u64> listed;
};

struct Done {
  v1::CommitAnswer header;
  std::map<std::string, std::string> columns;
  std::optional<Wish> next;
};

struct Run {
  std::string run_id, label;
  u64 epoch, step = 0;
  Balls balls;
  bool begun = false;
  std::optional<std::array<u32, 2>> integrated;  // stage and repetition
  std::vector<u32> sizes, group;                 // group of each ball
  std::vector<u64> members, watch;
  std::vector<Vec> velocity;
  double dt = 0;
  std::string last_request;
  std::optional<Done> last_commit;
  std::vector<u32> group_number;
  std::optional<std::vector<Vec>> surveyed;
  std::optional<std::vector<u64>> listed, told;
};

u64 mix(u64 x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

u64 bits(double x) {
  u64 word;
  std::memcpy(&word, &x, 8);
  return word;
}

u64 state_hash(const Balls &balls) {
  u64 sum = 0;
  for (size_t i = 0; i < balls.position.size(); i++) {
    u64 hash = mix(i);
    for (const Vec &v : {balls.position[i], balls.velocity[i]})
      for (double x : v) hash = mix(hash ^ bits(x));
    sum += hash;
  }
  return sum;
}

u64 checksum(const std::string &bytes, u64 hash = 0) {
  for (unsigned char byte : bytes) hash = mix(hash ^ byte);
  return hash;
}

size_t counted(const char *what, u64 count, size_t most) {
  if (count > most) invalid(std::string(what) + " is " + std::to_string(count) + ", more than there are particles");
  return count;
}

Room wish_room(const v1::Interest &wish, size_t count) {
  if (wish.wanted() == v1::WANTED_NEAR) return {{"interest", CELL_SET_BYTES_MAX}};
  if (wish.wanted() == v1::WANTED_LISTED) return {{"listed", 8 * counted("listed", wish.listed(), count)}};
  return {};
}

void set(v1::Vec3 *to, Vec v) { to->set_x(v[0]), to->set_y(v[1]), to->set_z(v[2]); }

Vec vec(const char *name, bool there, const v1::Vec3 &v) {
  if (!there) invalid(std::string("field ") + name + " is missing");
  const Vec value{v.x(), v.y(), v.z()};
  for (double x : value)
    if (!(std::abs(x) < 1e100)) invalid(std::string(name) + " must be finite");
  return value;
}

class Service final : public v1::Solver::Service {
  using Context = grpc::ServerContext;
  template <typename Message> using Writer = grpc::ServerWriter<Message>;
  template <typename Out, typename In> using Both = grpc::ServerReaderWriter<Out, In>;

  std::mutex mutex_;
  std::optional<Run> run_;

  // Serves a call, one at a time.
  template <typename Call>
  Status serve(Call call) {
    try {
      std::lock_guard lock(mutex_);
      return call();
    } catch (const Refused &refused) {
      return {refused.code, refused.text};
    } catch (const Reader::Fault &fault) {
      return section_status(fault);
    }
  }

  // Serves a call that comes as a stream. A slow sender must not keep others waiting.
  template <typename Header, typename Stream, typename Message, typename Call>
  Status serve_stream(Stream &stream, Message message, std::function<Room(const Header &, size_t)> room, Call call) {
    Header header;
    Columns columns;
    try {
      columns = gather<Stream, Message, Header>(stream, message, header, [&](const Header &header) {
        std::lock_guard lock(mutex_);
        return room(header, run(header.context()).balls.position.size());
      });
    } catch (const Refused &refused) {
      return {refused.code, refused.text};
    }
    return serve([&] { return call(run(header.context()), header, columns); });
  }

  Run &run(const v1::RunContext &context) {
    if (!run_) throw Refused{StatusCode::NOT_FOUND, "no run is served: expected Initialize"};
    if (context.run_id() != run_->run_id || context.epoch() != run_->epoch)
      early("the call is for another run or epoch than " + run_->run_id + ", epoch " + std::to_string(run_->epoch));
    return *run_;
  }

  static void expect(const Run &run, bool in_order, const char *call, u64 step) {
    if (!in_order || step != run.step)
      early(std::string(call) + " of step " + std::to_string(step) + " is out of order: step " + std::to_string(run.step) +
            (run.integrated ? " was integrated" : run.begun ? " has begun" : " has not begun"));
  }

  static std::vector<u64> find(const Run &run, const char *name, std::vector<u64> ids) {
    for (u64 id : ids)  // ids are places
      if (id >= run.balls.position.size()) invalid(std::string(name) + ": an id is unknown to this solver");
    return ids;
  }

 public:
  Status Describe(Context *, const v1::DescribeRequest *request, v1::DescribeResponse *answer) override {
    if (request->protocol_version() != VERSION)
      return {StatusCode::FAILED_PRECONDITION, "balls speaks version 2 of amalgam.solver"};
    answer->set_name("balls");
    answer->set_version("0.1.0");
    answer->set_protocol_version(VERSION);
    answer->set_integration(v1::INTEGRATION_EXPLICIT);
    return Status::OK;
  }

  Status Initialize(Context *, const v1::InitializeRequest *request, Writer<v1::InitializeResponse> *out) override {
    return serve([&] {
      const u64 epoch = request->epoch();
      if (request->run_id().size() > 512 || request->participant().size() > 512) invalid("a name has more than 512 bytes");
      if (run_ && request->run_id() != run_->run_id && epoch > 1) early("another run is served");
      if (run_ && request->run_id() == run_->run_id && epoch <= run_->epoch) early("expected a larger epoch");
      const Vec gravity = vec("gravity", request->has_gravity(), request->gravity());
      const Balls balls(Reader(request->section()).read(), gravity);
      const u64 label = checksum(request->section(), mix(request->seed() ^ bits(gravity[2])));
      run_.emplace(Run{request->run_id(), std::string(reinterpret_cast<const char *>(&label), 8), epoch, 0, balls, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}});
      const size_t count = balls.position.size();
      run_->group_number.assign(count, NO_GROUP);
      v1::InitializeHeader header;
      header.set_particles(count);
      header.set_stable_dt(std::numeric_limits<double>::infinity());
      std::vector<u64> id(count);
      for (size_t i = 0; i < count; i++) id[i] = i;
      Packets<v1::InitializeResponse> packets(header);
      packets.put("id", id);
      packets.put("position", balls.position);
      packets.put("velocity", balls.velocity);
      packets.put("mass", std::vector<double>(count ? 1 : 0, balls.mass));
      packets.put("radius", std::vector<double>(count ? 1 : 0, balls.radius));
      packets.put("immovable", std::vector<unsigned char>(count ? 1 : 0, 0));
      packets.send(*out);
      return Status::OK;
    });
  }

  Status Survey(Context *, const v1::SurveyRequest *request, Writer<v1::SurveyResponse> *out) override {
    return serve([&] {
      Run &run = this->run(request->context());
      expect(run, !run.integrated, "Survey", request->context().step());
      const Cells grid = Cells::from(request->lattice());
      check_cells(run, grid, request->margin());
      run.surveyed = run.balls.position;
      std::set<u64> keys;
      for (const Vec &x : run.balls.position)
        grid.around(x, run.balls.radius * (1.0 + request->margin()), [&](u64 key) { keys.insert(key); });
      const std::string bytes = cells_to_bytes(keys);
      Packets<v1::SurveyResponse> packets{v1::SurveyAnswer()};
      packets.put_bytes("cells", bytes.data(), bytes.size());
      packets.send(*out);
      return Status::OK;
    });
  }

  Status Begin(Context *, Both<v1::BeginResponse, v1::BeginRequest> *stream) override {
    const auto room = [](const v1::BeginHeader &header, size_t count) { return wish_room(header.interest(), count); };
    return serve_stream<v1::BeginHeader>(*stream, v1::BeginRequest(), room, [&](Run &run, auto &header, auto &columns) {
      expect(run, !run.integrated, "Begin", header.context().step());
      const Wish wish = read_wish(run, header.interest(), columns);
      if (run.begun) run.told.reset();  // whoever asks again may not have taken over the last answer
      std::map<std::string, std::string> answer;
      Packets<v1::BeginResponse> packets(start(run, wish, answer));
      for (const auto &[name, bytes] : answer) packets.put_bytes(name, bytes.data(), bytes.size());
      packets.send(*stream);
      return Status::OK;
    });
  }

  Status Integrate(Context *, Both<v1::IntegrateResponse, v1::IntegrateRequest> *stream) override {
    return serve_stream<v1::IntegrateHeader>(*stream, v1::IntegrateRequest(), integrate_room, [&](Run &run, auto &header, auto &columns) {
      std::string request = header.SerializeAsString();
      for (const auto &[name, bytes] : columns.data) request += name + bytes;
      const bool again = run.integrated && run.last_request == request;
      if (!again) integrate(run, header, columns);
      run.last_request = request;
      const Balls &balls = run.balls;
      double travel = 0;
      for (size_t i = 0; i < balls.position.size(); i++)
        if (run.group[i] == NO_GROUP) travel = std::max(travel, length(balls.free_velocity(i, run.dt)) * run.dt / balls.radius);
      v1::IntegrateAnswer answer;
      answer.set_travel_max(travel);
      std::vector<Vec> momentum, watched;
      for (u32 size : run.sizes) momentum.push_back(balls.momentum(size, run.dt));
      for (u64 id : run.watch) watched.push_back(balls.free_velocity(id, run.dt));
      Packets<v1::IntegrateResponse> packets(answer);
      packets.put("momentum", momentum);
      packets.put("slope", std::vector<double>(run.sizes.empty() ? 0 : 6, 0.0));
      packets.put("watch_velocity", watched);
      packets.send(*stream);
      return Status::OK;
    });
  }

  Status Commit(Context *, Both<v1::CommitResponse, v1::CommitRequest> *stream) override {
    return serve_stream<v1::CommitHeader>(*stream, v1::CommitRequest(), commit_room, [&](Run &run, auto &header, auto &columns) {
      const u64 step = header.context().step();
      if (!run.integrated && step + 1 == run.step && run.last_commit) {
        run.told.reset();  // the answer was lost, and with it what was said of particles
      } else {
        expect(run, run.integrated == std::array<u32, 2>{header.stage(), header.repetition()}, "Commit", step);
        commit(run, header, columns);
      }
      Done done = *run.last_commit;
      if (done.next && drift(run) <= header.next_within()) *done.header.mutable_next() = start(run, *done.next, done.columns);
      Packets<v1::CommitResponse> packets(done.header);
      for (const auto &[name, bytes] : done.columns) packets.put_bytes(name, bytes.data(), bytes.size());
      packets.send(*stream);
      return Status::OK;
    });
  }

  Status Frame(Context *, const v1::FrameRequest *request, Writer<v1::FrameResponse> *out) override {
    return serve([&] {
      Run &run = this->run(request->context());
      expect(run, !run.integrated, "Frame", request->context().step());
      const size_t count = run.balls.position.size();
      v1::FrameAnswer header;
      header.set_particles(count);
      std::vector<u64> id(count);
      for (size_t i = 0; i < count; i++) id[i] = i;
      Packets<v1::FrameResponse> packets(header);
      packets.put("id", id);
      packets.put("position", run.balls.position);
      packets.put("velocity", run.balls.velocity);
      packets.put("radius", std::vector<double>(count ? 1 : 0, run.balls.radius));
      packets.put("group", run.group_number);
      packets.send(*out);
      return Status::OK;
    });
  }

  Status Save(Context *, const v1::SaveRequest *request, Writer<v1::SaveResponse> *out) override {
    return serve([&] {
      Run &run = this->run(request->context());
      expect(run, !run.integrated, "Save", request->context().step());
      run.told.reset();  // a run that is restored from here hears all ids; this one, too
      std::string state;
      for (const auto *column : {&run.balls.position, &run.balls.velocity})
        state.append(reinterpret_cast<const char *>(column->data()), column->size() * sizeof(Vec));
      const u64 sum = checksum(state);
      const std::string snapshot = run.label + std::string(reinterpret_cast<const char *>(&sum), 8) + state;
      v1::SaveAnswer header;
      header.set_state_hash(state_hash(run.balls));
      Packets<v1::SaveResponse> packets(header);
      packets.put_bytes("snapshot", snapshot.data(), snapshot.size());
      packets.send(*out);
      return Status::OK;
    });
  }

  Status Restore(Context *, grpc::ServerReader<v1::RestoreRequest> *stream, v1::RestoreResponse *answer) override {
    const auto room = [](const v1::RestoreHeader &, size_t count) { return Room{{"snapshot", 16 + 48 * count + (1 << 20)}}; };
    return serve_stream<v1::RestoreHeader>(*stream, v1::RestoreRequest(), room, [&](Run &run, auto &header, auto &columns) {
      if (run.integrated) expect(run, false, "Restore", header.context().step());
      const std::string &snapshot = columns.data["snapshot"];
      const size_t count = run.balls.position.size();
      if (snapshot.size() != 16 + 2 * count * sizeof(Vec) || snapshot.compare(0, 8, run.label) != 0)
        throw Refused{StatusCode::ABORTED, "the snapshot is one of another section, or is none"};
      const std::string state = snapshot.substr(16);
      const u64 sum = checksum(state);
      if (std::memcmp(&sum, snapshot.data() + 8, 8) != 0) throw Refused{StatusCode::ABORTED, "the snapshot is damaged"};
      std::memcpy(run.balls.position.data(), state.data(), count * sizeof(Vec));
      std::memcpy(run.balls.velocity.data(), state.data() + count * sizeof(Vec), count * sizeof(Vec));
      run.step = header.context().step();
      run.begun = false;
      run.last_commit.reset(), run.surveyed.reset(), run.listed.reset(), run.told.reset();
      run.group_number.assign(count, NO_GROUP);
      answer->set_state_hash(state_hash(run.balls));
      return Status::OK;
    });
  }

  Status Shutdown(Context *, const v1::ShutdownRequest *request, v1::ShutdownResponse *) override {
    return serve([&] {
      if (run_) run(request->context());
      run_.reset();
      return Status::OK;
    });
  }

 private:
  static Room integrate_room(const v1::IntegrateHeader &header, size_t count) {
    const size_t groups = counted("groups", header.groups(), count);
    Room room{{"inertia", 8 * groups}, {"impulse", 24 * groups}};
    if (header.repetition() > 0) return room;
    room["group_size"] = 4 * groups;
    room["velocity"] = 24 * groups;
    room["member"] = 8 * counted("members", header.members(), count);
    room["watch"] = 8 * counted("watched", header.watched(), count);
    if (header.has_occupied()) room["occupied"] = CELL_SET_BYTES_MAX;
    return room;
  }

  static Room commit_room(const v1::CommitHeader &header, size_t count) {
    const size_t groups = counted("groups", header.groups(), count);
    Room room = header.has_next() ? wish_room(header.next(), count) : Room();
    room["group_velocity"] = 24 * groups;
    room["group_number"] = 4 * groups;
    room["member_velocity"] = 24 * counted("members", header.members(), count);
    room["track"] = 8 * counted("tracked", header.tracked(), count);
    if (header.bodies()) room["group_spin"] = 24 * groups;
    return room;
  }

  static void check_cells(const Run &run, const Cells &grid, double margin) {
    if (!(margin >= 0 && margin <= 4)) invalid("margin must be from 0 to 4");
    if (!(grid.cell_size >= run.balls.radius * (1.0 + margin) / 16)) invalid("the cells are too small for these particles");
  }

  static Wish read_wish(const Run &run, const v1::Interest &header, const Columns &columns) {
    Wish wish{header, {}, {}};
    if (!v1::Wanted_IsValid(header.wanted())) invalid("what is wanted is unknown");
    if (!(header.contact_time() >= 0 && header.contact_time() <= 1e6)) invalid("contact_time must be from 0 to 1e6 s");
    if (!(header.contact_acceleration() >= 0 && header.contact_acceleration() <= 1e12))
      invalid("contact_acceleration must be from 0 to 1e12 m/s^2");
    if (header.wanted() == v1::WANTED_NEAR) {
      check_cells(run, Cells::from(header.lattice()), header.margin());
      wish.cells = columns.cells("interest");
    }
    if (header.wanted() == v1::WANTED_LISTED) wish.listed = find(run, "listed", columns.ids("listed", header.listed()));
    if (header.wanted() == v1::WANTED_AGAIN && !run.listed) invalid("no particles were listed yet");
    return wish;
  }

  // The largest displacement since the last Survey, relative to the radius; infinite without one.
  static double drift(const Run &run) {
    if (!run.surveyed) return std::numeric_limits<double>::infinity();
    double most = 0;
    for (size_t i = 0; i < run.surveyed->size(); i++)
      most = std::max(most, length(run.balls.position[i] - (*run.surveyed)[i]) / run.balls.radius);
    return most;
  }

  // Begins a step: the particles wanted, and those in contact with their own kind.
  static v1::BeginAnswer start(Run &run, const Wish &wish, std::map<std::string, std::string> &columns) {
    const Balls &balls = run.balls;
    std::vector<u64> wanted;
    const auto kind = wish.header.wanted();
    if (kind == v1::WANTED_ALL || kind == v1::WANTED_NEAR) {
      const Cells grid = kind == v1::WANTED_NEAR ? Cells::from(wish.header.lattice()) : Cells{};
      for (u64 i = 0; i < balls.position.size(); i++) {
        bool hit = kind == v1::WANTED_ALL;
        if (!hit)
          grid.around(balls.position[i], balls.radius * (1.0 + wish.header.margin()), [&](u64 key) { hit |= wish.cells.count(key) > 0; });
        if (hit) wanted.push_back(i);
      }
    } else {
      wanted = kind == v1::WANTED_LISTED ? wish.listed : *run.listed;
      if (kind == v1::WANTED_LISTED) run.listed = wanted;
    }
    const auto pairs = contacts(balls, wish.header.contact_time(), wish.header.contact_acceleration());
    if (!pairs.empty()) {
      for (const auto &pair : pairs) wanted.insert(wanted.end(), pair.begin(), pair.end());
      std::sort(wanted.begin(), wanted.end());
      wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    }
    std::vector<u32> places;
    for (const auto &pair : pairs)
      for (u64 id : pair) places.push_back(std::lower_bound(wanted.begin(), wanted.end(), id) - wanted.begin());
    std::vector<Vec> position, velocity;
    for (u64 id : wanted) position.push_back(balls.position[id]), velocity.push_back(balls.velocity[id]);
    const auto put = [&](const char *name, const auto &values) {
      columns[name].assign(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(values[0]));
    };
    v1::BeginAnswer header;
    header.set_particles(wanted.size());
    header.set_contacts(pairs.size());
    header.set_as_before(run.told == wanted);
    if (!header.as_before()) put("id", wanted);
    put("position", position);
    put("velocity", velocity);
    put("contacts", places);
    run.told = wanted;
    run.begun = true;
    return header;
  }

  // Pairs of balls that intersect, or may within `time`, ascending.
  static std::vector<std::array<u64, 2>> contacts(const Balls &balls, double time, double acceleration) {
    std::vector<std::array<u64, 2>> near;
    if (!balls.self_collision) return near;
    const size_t count = balls.position.size();
    std::vector<double> speed(count);
    double fastest = 0;
    for (size_t i = 0; i < count; i++) fastest = std::max(fastest, speed[i] = length(balls.velocity[i]) + acceleration * time);
    // A blow may be handed on, so that slower balls come as far as the fastest one.
    const double reach = 2 * balls.radius + 4 * fastest * time;
    std::vector<u64> order(count);
    for (u64 i = 0; i < count; i++) order[i] = i;
    std::sort(order.begin(), order.end(), [&](u64 a, u64 b) { return balls.position[a][0] < balls.position[b][0]; });
    for (size_t a = 0; a < count; a++)
      for (size_t b = a + 1; b < count && balls.position[order[b]][0] - balls.position[order[a]][0] <= reach; b++)
        if (length(balls.position[order[b]] - balls.position[order[a]]) < reach)
          near.push_back({std::min(order[a], order[b]), std::max(order[a], order[b])});
    std::sort(near.begin(), near.end());
    const auto distance = [&](const auto &pair) { return length(balls.position[pair[0]] - balls.position[pair[1]]); };
    for (int hit = 0; hit < 4 && time > 0; hit++) {
      const auto before = speed;
      for (const auto &pair : near) {
        const auto [i, j] = pair;
        if (distance(pair) - 2 * balls.radius < 2 * time * before[i] + 2 * time * before[j])
          speed[i] = std::max(speed[i], before[j]), speed[j] = std::max(speed[j], before[i]);
      }
      if (speed == before) break;
    }
    const auto apart = [&](const auto &pair) {
      const double reach = 2 * balls.radius + 2 * time * speed[pair[0]] + 2 * time * speed[pair[1]];
      const Vec between = balls.position[pair[0]] - balls.position[pair[1]];
      return !(dot(between, between) < reach * reach);
    };
    near.erase(std::remove_if(near.begin(), near.end(), apart), near.end());
    return near;
  }

  static void integrate(Run &run, const v1::IntegrateHeader &header, const Columns &columns) {
    const std::array<u32, 2> at{header.stage(), header.repetition()};
    if (at[0] == 0) invalid("stages count from 1");
    if (!(header.dt() >= 1e-30 && header.dt() <= 1e15)) invalid("dt must be from 1e-30 to 1e15 s");
    if (!(header.forcing() >= 0 && header.forcing() < 1)) invalid("forcing must be from 0 to below 1");
    bool follows = at == std::array<u32, 2>{1, 0} && run.begun;
    if (run.integrated) {
      const auto [stage, repetition] = *run.integrated;
      follows |= at == std::array<u32, 2>{stage, repetition + 1} || at == std::array<u32, 2>{stage + 1, 0};
    }
    const size_t count = header.groups();
    // A repetition may leave out inertias: balls do not depend on them.
    const bool as_before = at[1] > 0 && columns.data.count("inertia") == 0;
    const auto inertia = columns.take<double>("inertia", as_before ? 0 : count);
    for (double mass : inertia)
      if (!(mass == std::numeric_limits<double>::infinity() || (mass >= 1e-50 && mass < MOMENTUM_LIMIT)))
        invalid("inertia must be infinite, or from 1e-50 to 1e62 kg");
    columns.vectors("impulse", count, MOMENTUM_LIMIT, true);
    std::vector<u32> sizes, group(run.balls.position.size(), NO_GROUP);
    std::vector<u64> members, watch;
    if (at[1] == 0) {
      sizes = columns.take<u32>("group_size", count, true);
      columns.vectors("velocity", count, SPEED_LIMIT);
      members = find(run, "member", columns.ids("member", header.members()));
      watch = find(run, "watch", columns.ids("watch", header.watched()));
      size_t next = 0;
      for (size_t k = 0; k < count; k++) {
        if (sizes[k] == 0 || sizes[k] > members.size() - next) invalid("sizes of groups must be at least 1 and add up to the members");
        for (u32 n = 0; n < sizes[k]; n++) group[members[next++]] = k;
      }
      if (next != members.size()) invalid("sizes of groups must add up to the members");
      for (u64 id : watch)
        if (group[id] != NO_GROUP) invalid("watch: a particle is a member of a group, not free");
    }
    expect(run, follows, "Integrate", header.context().step());
    if (at[1] > 0 && count != run.sizes.size()) invalid("other groups than the stage has");
    run.begun = true;
    run.integrated.reset();
    if (at[1] == 0) run.sizes = sizes, run.group = group, run.members = members, run.watch = watch;
    run.dt = header.dt();
    run.integrated = at;
  }

  static void commit(Run &run, const v1::CommitHeader &header, const Columns &columns) {
    Balls &balls = run.balls;
    const size_t groups = run.sizes.size();
    if (header.bodies()) invalid("spins are committed, but the groups are no bodies");
    if (header.groups() != groups || (header.members() != 0 && header.members() != run.members.size()))
      invalid("other groups than the stage has");
    if (header.grids_size() > 8) invalid("more than 8 grids in one Commit");
    const auto group_velocity = columns.vectors("group_velocity", groups, SPEED_LIMIT);
    const auto number = columns.take<u32>("group_number", groups);
    const auto member_velocity = columns.vectors("member_velocity", header.members(), SPEED_LIMIT);
    const auto track = find(run, "track", columns.ids("track", header.tracked()));
    std::vector<Cells> grids;
    for (const auto &grid : header.grids()) grids.push_back(Cells::from(grid));
    Done done;
    if (header.has_next()) {
      if (!(header.next_within() >= 0)) invalid("next_within must not be negative");
      done.next = read_wish(run, header.next(), columns);
    }
    const auto before = balls.velocity;
    const size_t count = balls.position.size();
    run.group_number.assign(count, NO_GROUP);
    for (size_t i = 0; i < count; i++) {
      if (run.group[i] != NO_GROUP) continue;
      balls.velocity[i] = balls.free_velocity(i, run.dt);
      balls.position[i] = balls.position[i] + balls.velocity[i] * run.dt;
    }
    for (size_t k = 0; k < run.members.size(); k++) {
      const u64 i = run.members[k];
      balls.position[i] = balls.position[i] + group_velocity[run.group[i]] * run.dt;
      balls.velocity[i] = header.members() == 0 ? group_velocity[run.group[i]] : member_velocity[k];
      run.group_number[i] = number[run.group[i]];
    }
    Vec momentum{}, angular{}, moment{};
    double kinetic = 0, speed = 0, change = 0;
    for (size_t i = 0; i < count; i++) {
      const Vec p = balls.velocity[i] * balls.mass, jump = balls.velocity[i] - before[i];
      momentum = momentum + p, angular = angular + cross(balls.position[i], p), moment = moment + balls.position[i] * balls.mass;
      kinetic += 0.5 * dot(p, balls.velocity[i]);
      speed = std::max(speed, dot(balls.velocity[i], balls.velocity[i])), change = std::max(change, dot(jump, jump));
    }
    v1::CommitAnswer &answer = done.header;
    answer.set_particles(count);
    answer.set_stable_dt(std::numeric_limits<double>::infinity());
    answer.set_speed_max(std::sqrt(speed));
    answer.set_radius_rate_max(std::sqrt(speed / (balls.radius * balls.radius)));
    answer.set_acceleration_max(std::sqrt(change) / run.dt);
    set(answer.mutable_momentum(), momentum);
    set(answer.mutable_angular_momentum(), angular);
    set(answer.mutable_mass_moment(), moment);
    answer.set_kinetic_energy(kinetic);
    if (header.want_state_hash()) answer.set_state_hash(state_hash(balls));
    for (size_t k = 0; k < grids.size(); k++) {
      std::set<u64> keys;
      for (const Vec &x : balls.position) grids[k].around(x, 0, [&](u64 key) { keys.insert(key); });
      done.columns["cells_" + std::to_string(k)] = cells_to_bytes(keys);
    }
    for (u64 id : track) {
      done.columns["track_position"].append(reinterpret_cast<const char *>(&balls.position[id]), sizeof(Vec));
      done.columns["track_velocity"].append(reinterpret_cast<const char *>(&balls.velocity[id]), sizeof(Vec));
    }
    run.step++;
    run.begun = false;
    run.integrated.reset();
    run.last_commit = std::move(done);
  }
};

}  // namespace

int main(int argc, char **argv) {
  std::string listen;
  bool insecure = false;
  for (int k = 1; k < argc; k++) {
    const std::string argument = argv[k];
    if (argument == "--listen" && k + 1 < argc) listen = argv[++k];
    else if (argument == "--insecure") insecure = true;
    else listen.clear(), k = argc;
  }
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) return std::cerr << "usage: balls --listen unix:PATH or HOST:PORT [--insecure]\n", 2;
  const std::string host = listen.substr(0, colon);
  const bool local = host == "unix" || host == "127.0.0.1" || host == "[::1]" || host == "localhost" || listen.rfind("unix:", 0) == 0;
  if (!local && !insecure)
    return std::cerr << "error: " << listen << " can be reached from other machines, unencrypted: say --insecure if that is meant\n", 1;
  // The main thread alone takes signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM), sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(MESSAGE_BYTES_MAX);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4);
  // The coordinator answers pings only while it waits for an answer.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (!server || port == 0) return std::cerr << "error: cannot listen on " << listen << "\n", 1;
  std::cout << "listening " << (host == "unix" ? listen : host + ":" + std::to_string(port)) << std::endl;
  int number = 0;
  sigwait(&signals, &number);
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(10));
  return 0;
}

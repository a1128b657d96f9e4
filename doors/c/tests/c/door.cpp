// The C++ door: each call, moved and empty handles, errors returned and thrown. DIRECTORY is a
// place for logs. With -fno-exceptions only what needs none is compiled.
#include <inkstone.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>
#if __has_include(<span>) && __cplusplus >= 202002L
#include <span>
#endif

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                             \
        }                                                                             \
    } while (0)

using namespace std::literals;

template <class... Types>
constexpr bool are_bytes = (std::is_convertible_v<Types, inkstone::bytes> && ...);
static_assert(are_bytes<const char *, char *, const char (&)[4], std::string, std::string &,
                        const std::string, std::string_view>);
static_assert(are_bytes<std::vector<char>, std::vector<std::byte>, std::array<char, 3>,
                        const std::array<unsigned char, 3> &>);
#if defined(__cpp_lib_span)
static_assert(are_bytes<std::span<std::byte>, std::span<const std::byte>, std::span<char>,
                        std::span<unsigned char, 3>>);
static_assert(!are_bytes<std::span<int>>);
#endif
static_assert(!are_bytes<std::nullptr_t> && !are_bytes<std::vector<int>> &&
              !are_bytes<std::vector<bool>> && !are_bytes<int *>);

/* The next record of a cursor, if there is one with this text. */
static bool is_next(inkstone::cursor &cursor, std::string_view text) {
    const auto record = cursor.next();
    return record && *record && (*record)->text() == text;
}

static void every_kind_of_bytes(const std::string &path) {
    auto opened = inkstone::log::open(path);
    const auto &log = *std::as_const(opened);
    CHECK(std::as_const(opened)->durable() == 0);
    CHECK(std::as_const(opened).value().get() == log.get());
    auto cursor = log.reader()->from(1);
    const auto is_kept = [&](const inkstone::bytes &data) {
        return log.append_durable(data) && is_next(*cursor, "o\0e"sv);
    };
    std::array<std::byte, 3> array{std::byte{'o'}, std::byte{0}, std::byte{'e'}};
    CHECK(is_kept("o\0e"s) && is_kept("o\0e"sv) && is_kept(array));
    CHECK(is_kept(std::vector<signed char>{'o', 0, 'e'}) && is_kept({"o\0e", 3}));
#if defined(__cpp_lib_span)
    CHECK(is_kept(std::span(array)) && is_kept(std::as_bytes(std::span(array))));
    CHECK(is_kept(std::span<const std::byte>(array)));
#endif
    const char *null = nullptr;
    CHECK(log.append(null).code() == INKSTONE_INVALID);
    CHECK(log.append_durable(null).code() == INKSTONE_INVALID);
    CHECK(log.append_parts({"a", null}).code() == INKSTONE_INVALID);
    CHECK(log.append_batch({"a", null}).code() == INKSTONE_INVALID);
    CHECK(*log.sync() == log.last());
    const inkstone::result<void> closed = log.close();
    closed.value();
}

static bool is_refused(inkstone_code code, const inkstone::error &error, const char *words) {
    return code == INKSTONE_INVALID && std::strstr(error.what(), words) != nullptr;
}

/* What stands before the zero byte is a log: no call may take that for the path. */
static void zero_bytes(const std::string &path) {
    CHECK(inkstone::log::open(path));
    const std::string cut = path + "\0 and more"s;
    const auto log = inkstone::log::open(cut);
    const auto reader = inkstone::reader::open(cut);
    CHECK(is_refused(log.code(), log.error(), "has a zero byte in it"));
    CHECK(is_refused(reader.code(), reader.error(), "has a zero byte in it"));
    const inkstone::error copied = log.error();
    CHECK(copied.get() == nullptr && copied.what() == log.error().what());
}

static void options(const std::string &path) {
    const std::string access = "buffered";
    auto set = inkstone::options().set("segment_bytes", 65536).set("record_bytes_max", 32768U);
    set.set("pad_groups", true).set("access", access).set("durability", "fdatasync");
    CHECK(!set.refused() && inkstone::log::open(path, set));
    /* What a setter refuses is the error of each opening: the first of them. */
    set.set("preparation", "sideways").set("tail_bytes", -1);
    const auto refused = inkstone::log::open(path, set);
    CHECK(is_refused(refused.code(), refused.error(), "preparation sideways: it must be one of"));
    CHECK(inkstone::reader::open(path, set).code() == INKSTONE_INVALID);
    /* To C, options that were moved away would be the defaults. */
    inkstone::options strict;
    strict.set("create", false);
    auto kept = std::move(strict);
    const auto moved = inkstone::log::open(path + "-moved", strict); // NOLINT: moved from.
    CHECK(is_refused(moved.code(), moved.error(), "these options were moved away"));
    CHECK(inkstone::reader::open(path, strict).code() == INKSTONE_INVALID);
    CHECK(inkstone::log::open(path + "-moved", kept).code() == INKSTONE_NO_LOG);
}

static void returned(const std::string &path) {
    std::atomic<int> called{0};
    auto counted = std::make_shared<int>(1);
    auto opened = inkstone::log::open(path);
    CHECK(opened && opened.code() == INKSTONE_OK);
    auto second = inkstone::log::open(path);
    CHECK(!second && second.error().code() == INKSTONE_LOCKED);
    CHECK(inkstone_error_path(second.error().get()) == path);
    CHECK(std::strstr(second.error().what(), "locked by") != nullptr);
    const inkstone::error copied = second.error();
    CHECK(copied.what() == second.error().what());

    inkstone::log log = std::move(opened).value();
    CHECK(*log.append_durable("one") == 1);
    auto pending = log.append(std::string("two"));
    CHECK(pending && pending->lsn() == 2 && pending->first_lsn() == 2);
    inkstone::pending moved = std::move(*pending);
    CHECK(pending->wait().code() == INKSTONE_INVALID);
    CHECK(*moved.wait() == 2 && moved.wait().code() == INKSTONE_INVALID);
    CHECK(*log.append_parts({"th", "", "ree"})->wait() == 3);
    CHECK(*log.append_batch({"four", "", "six"})->wait() == 6);
    const std::vector<std::string> texts{"seven", "eight"};
    auto batch = log.append_batch(texts);
    CHECK(batch->first_lsn() == 7 && *batch->wait() == 8);
    CHECK(*log.append_batch(std::vector<inkstone::bytes>{"nine"})->wait() == 9);
    auto called_back = log.append("ten");
    CHECK(called_back->on_durable([&, counted](std::uint64_t lsn, const inkstone_error *error) {
        CHECK(lsn == 10 && error == nullptr);
        called++;
    }));
    CHECK(*log.sync() == 10);
    /* A callback that is not taken is deleted. */
    CHECK(called_back->on_durable([counted](std::uint64_t, const inkstone_error *) {}).code() ==
          INKSTONE_INVALID);
    { auto let_go = log.append("let go"); }

    auto reader = log.reader();
    CHECK(reader && reader->first() == 1);
    auto cursor = reader->from(3);
    CHECK(is_next(*cursor, "three") && is_next(*cursor, "four") && is_next(*cursor, ""));
    CHECK(log.truncate_before(7));
    auto gone = cursor->next();
    CHECK(gone.code() == INKSTONE_TRUNCATED_BEFORE);
    std::uint64_t first = 0;
    CHECK(inkstone_error_lsn(gone.error().get(), &first) && first == 7);
    CHECK(log.truncate_after(8) && log.first() == 7 && log.last() == 8 && log.durable() == 8);
    CHECK(inkstone_cursor_seek(cursor->get(), 8) == INKSTONE_OK);
    CHECK(is_next(*cursor, "eight"));
    auto end = cursor->next();
    CHECK(end && !*end);
    CHECK(log.close() && called == 1 && counted.use_count() == 1);
    CHECK(log.append("x").code() == INKSTONE_CLOSED);
    CHECK(inkstone_reader_end_of_log(reader->get(), nullptr) == INKSTONE_CLOSED);
    inkstone::log other = std::move(log);
    CHECK(log.append("x").code() == INKSTONE_INVALID && log.durable() == 0); // NOLINT: moved from.
    auto outside = inkstone::reader::open(path);
    CHECK(outside && outside->first() == 7);
    CHECK(inkstone::reader::open(path + " none").code() == INKSTONE_NO_LOG);
}

#if defined(__cpp_exceptions)
static void thrown(const std::string &path) {
    const auto slow = inkstone::options().set("slow_commit_us", 1000000);
    auto log = inkstone::log::open(path, slow).value();
    try {
        auto second = inkstone::log::open(path).value();
        CHECK(false && "a second opening throws");
    } catch (const inkstone::error &error) {
        CHECK(error.code() == INKSTONE_LOCKED);
    }
    auto kept = std::make_shared<int>(1);
    std::atomic<int> called{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 64; thread++) {
        threads.emplace_back([&] {
            for (int i = 0; i < 20; i++) {
                log.append("a record")
                    ->on_durable([&, kept](std::uint64_t, const inkstone_error *error) {
                        called += error == nullptr;
                    })
                    .value();
                log.append_durable("another").value();
            }
        });
    }
    for (auto &thread : threads) thread.join();
    auto cursor = log.reader()->from(1).value();
    std::uint64_t read = 0;
    while (auto record = cursor.next().value()) CHECK(record->lsn() == ++read);
    CHECK(read == log.last() && read == 64 * 40);
    log.close().value();
    CHECK(called == 64 * 20 && kept.use_count() == 1);
    try {
        log.append_durable("x").value();
        CHECK(false && "a closed log throws");
    } catch (const std::exception &error) {
        CHECK(std::string(error.what()) == "the log is closed; open it again to continue");
    }
}
#endif

int main(int count, char **arguments) {
    CHECK(count == 2);
    const std::string place = arguments[1];
    every_kind_of_bytes(place + "/bytes");
    zero_bytes(place + "/zero");
    options(place + "/options");
    returned(place + "/returned");
#if defined(__cpp_exceptions)
    thrown(place + "/thrown");
#endif
    std::puts("the C++ door does what it says");
    return 0;
}

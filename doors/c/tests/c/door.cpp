// The C++ door: each call once, moved and empty handles, errors thrown and returned. DIRECTORY is a
// place for logs. With -fno-exceptions only what needs none is compiled.
#include <inkstone.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

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

static void every_kind_of_bytes(const std::string &path) {
    auto opened = inkstone::log::open(path, std::nothrow);
    const auto &log = *std::as_const(opened);
    CHECK(std::as_const(opened)->durable() == 0);
    CHECK(std::as_const(opened).value().get() == log.get());
    auto reader = log.reader(std::nothrow);
    const auto is_kept = [&](const inkstone::bytes &data) {
        const auto lsn = log.append_durable(data, std::nothrow);
        return lsn && *reader->get(*lsn, std::nothrow) == "o\0e"s;
    };
    std::array<std::byte, 3> array{std::byte{'o'}, std::byte{0}, std::byte{'e'}};
    CHECK(is_kept("o\0e"s) && is_kept("o\0e"sv) && is_kept(array));
    CHECK(is_kept(std::vector<signed char>{'o', 0, 'e'}) && is_kept({"o\0e", 3}));
#if defined(__cpp_lib_span)
    CHECK(is_kept(std::span(array)) && is_kept(std::as_bytes(std::span(array))));
    CHECK(is_kept(std::span<const std::byte>(array)));
#endif
    const char *null = nullptr;
    const inkstone::bytes parts[] = {"a", null};
    CHECK(log.append(null, std::nothrow).code() == INKSTONE_INVALID);
    CHECK(log.append_durable(null, std::nothrow).code() == INKSTONE_INVALID);
    CHECK(log.append_parts(parts, 2, std::nothrow).code() == INKSTONE_INVALID);
    CHECK(log.append_batch(parts, 2, std::nothrow).code() == INKSTONE_INVALID);
    const auto synced = log.sync(std::nothrow);
    CHECK(*synced == log.last() && !std::as_const(reader)->get(log.last() + 1, std::nothrow));
    const inkstone::result<void> closed = log.close(std::nothrow);
    closed.value();
}

/* What stands before the zero byte is a log: no call may take that for the path. */
static void zero_bytes(const std::string &path) {
    CHECK(inkstone::log::open(path, std::nothrow));
    const std::string cut = path + "\0 and more"s;
    const auto is_refused = [](const auto &result) {
        return result.code() == INKSTONE_INVALID &&
               std::strstr(result.error().what(), "has a zero byte in it") != nullptr;
    };
    CHECK(is_refused(inkstone::log::open(cut, std::nothrow)));
    CHECK(is_refused(inkstone::reader::open(cut, std::nothrow)));
    CHECK(is_refused(inkstone::verify(cut, std::nothrow)));
    CHECK(is_refused(inkstone::look(cut, std::nothrow)));
    CHECK(is_refused(inkstone::copy(cut, path + "-new", std::nothrow)));
    CHECK(is_refused(inkstone::copy(path, path + "-new\0"s, std::nothrow)));
    CHECK(inkstone::look(path + "-new", std::nothrow).code() == INKSTONE_IO);
    CHECK(is_refused(inkstone::keep_bytes(cut, 1, std::nothrow)));
    CHECK(is_refused(inkstone::keep_records(cut, 1, std::nothrow)));
    CHECK(is_refused(inkstone::keep_seconds(cut, 1, std::nothrow)));
    const auto log = inkstone::log::open(path, std::nothrow);
    CHECK(is_refused(log->stats_prometheus("a\0b"s, std::nothrow)));
    const inkstone::error copied = inkstone::verify(cut, std::nothrow).error();
    CHECK(copied.path().empty() && copied.os() == 0 && !copied.offset() && copied.advice()[0] == 0);
}

static void without_exceptions(const std::string &path) {
    std::atomic<int> events{0}, called{0};
    auto options = inkstone::options::small().slow_commit(1h).listener(
        [](const inkstone_event *) { CHECK(false && "replaced below"); });
    auto counted = std::make_shared<int>(1);
    options.listener([&events, counted](const inkstone_event *event) {
        CHECK(inkstone_event_text(event)[0] != 0);
        events++;
    });
    CHECK(counted.use_count() == 2);
    CHECK(options.set("linger_us", "1", std::nothrow));
    CHECK(options.set("durability", "fdatasync", std::nothrow));
    CHECK(options.set("preparation", "sideways", std::nothrow).code() == INKSTONE_INVALID);
    CHECK(options.check(std::nothrow).has_value());
    auto opened = inkstone::log::open(path, std::nothrow, options);
    CHECK(opened && opened.code() == INKSTONE_OK);
    auto second = inkstone::log::open(path, std::nothrow);
    CHECK(!second && second.error().code() == INKSTONE_LOCKED && second.error().path() == path);
    CHECK(!second.error().offset() && second.error().os() == 0 && second.error().is_retryable());
    CHECK(std::strstr(second.error().what(), "locked by") != nullptr);
    CHECK(second.error().advice()[0] != 0);
    const inkstone::error copied = second.error();
    CHECK(copied.what() == second.error().what());

    inkstone::log log = std::move(opened).value();
    inkstone::options strict;
    strict.create(false);
    auto kept_options = std::move(strict);
    CHECK(inkstone::log::open(path + "-moved", std::nothrow, strict).code() == INKSTONE_INVALID);
    CHECK(inkstone::reader::open(path, std::nothrow, strict).code() == INKSTONE_INVALID);
    CHECK(inkstone::copy(path, path + "-copy", std::nothrow, strict).code() == INKSTONE_INVALID);
    CHECK(events == 1);
    CHECK(*log.append_durable("one", std::nothrow) == 1);
    auto pending = log.append(std::string("two"), std::nothrow);
    CHECK(pending && pending->lsn() == 2 && pending->first_lsn() == 2);
    inkstone::pending moved = std::move(*pending);
    CHECK(pending->wait(std::nothrow).code() == INKSTONE_INVALID);
    CHECK(*moved.wait(std::nothrow) == 2 && moved.wait(std::nothrow).code() == INKSTONE_INVALID);
    CHECK(*log.append_unwaited(std::vector<unsigned char>{'3'}, std::nothrow) == 3);
    const inkstone::bytes parts[] = {"fo", "", "ur"};
    CHECK(*log.append_parts(parts, 3, std::nothrow)->wait(std::nothrow) == 4);
    CHECK(*log.append_batch(parts, 3, std::nothrow)->wait(std::nothrow) == 7);
    CHECK(log.try_append("eight", std::nothrow)
              ->on_durable(
                  [&, counted](std::uint64_t lsn, const inkstone_error *error) {
                      CHECK(lsn == 8 && error == nullptr);
                      called++;
                  },
                  std::nothrow));
    CHECK(*log.sync(std::nothrow) == 8 && *log.wait_durable(8, inkstone::forever, std::nothrow));
    CHECK(!*log.wait_durable(9, 1ms, std::nothrow));
    std::atomic<std::uint64_t> watermark{0};
    CHECK(log.on_watermark(
        [&, counted](std::uint64_t lsn, const inkstone_error *) { watermark = lsn; },
        std::nothrow));
    auto reader = log.reader(std::nothrow);
    CHECK(reader && reader->first() == 1 && reader->durable() == 8);
    CHECK(*reader->get(4, std::nothrow) == "four");
    CHECK(reader->get(9, std::nothrow).error().lsn() == 8);
    auto cursor = reader->from(7, std::nothrow);
    CHECK(cursor->next_lsn() == 7 && cursor->durable() == 8);
    auto record = cursor->next(std::nothrow);
    CHECK(record && *record && (*record)->lsn() == 7 && (*record)->text() == "ur");
    CHECK((*cursor->next_within(1s, std::nothrow))->text() == "eight");
    CHECK(!*cursor->next_within(1ms, std::nothrow));
    cursor->seek(1);
    CHECK((*cursor->next(std::nothrow))->text() == "one");
    CHECK(log.truncate_before(2, std::nothrow) && log.truncate_after(7, std::nothrow));
    CHECK(watermark == 7);
    CHECK(log.first() == 2 && log.last() == 7 && log.durable() == 7 && log.head_first() >= 1);
    CHECK(log.stats_json(std::nothrow)->find("\"records\":8") != std::string::npos);
    CHECK(log.stats_prometheus("x", std::nothrow)->find("log=\"x\"") != std::string::npos);
    CHECK(log.recovery_json(std::nothrow)->front() == '{' && !log.choice(std::nothrow)->empty());
    CHECK(*reader->recovery_json(std::nothrow) == "null");
    CHECK(reader->end_of_log(std::nothrow));
    CHECK(log.close(std::nothrow) && called == 1);
    CHECK(log.append("x", std::nothrow).code() == INKSTONE_CLOSED);
    CHECK(reader->end_of_log(std::nothrow).code() == INKSTONE_CLOSED);
    inkstone::log other = std::move(log);
    CHECK(log.append("x", std::nothrow).code() == INKSTONE_INVALID && log.durable() == 0);
    CHECK(inkstone::verify(path, std::nothrow)->is_intact);
    CHECK(inkstone::look(path, std::nothrow)->json.front() == '{' &&
          *inkstone::keep_records(path, 1, std::nothrow) == 7);
    CHECK(*inkstone::keep_bytes(path, 1, std::nothrow) >= 1);
    CHECK(*inkstone::keep_seconds(path, 3600, std::nothrow) == 2);
    CHECK(*inkstone::copy(path, path + " copied", std::nothrow) == 6);
    auto outside = inkstone::reader::open(path + " copied", std::nothrow);
    CHECK(outside && outside->durable() == 7);
    CHECK(inkstone::reader::open(path + " none", std::nothrow).code() == INKSTONE_NO_LOG);
}

#if INKSTONE_EXCEPTIONS
static void with_exceptions(const std::string &path) {
    inkstone::log log(path,
                      inkstone::options().create(true).set("linger_us", "300").slow_commit(1s));
    try {
        inkstone::log second(path);
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
                    .on_durable([&, kept](std::uint64_t, const inkstone_error *error) {
                        called += error == nullptr;
                    });
                log.append_durable("another");
            }
        });
    }
    for (auto &thread : threads) thread.join();
    log.append_parts({"in ", "parts"}).wait();
    log.try_append_parts({"in ", "parts"}).wait();
    log.append_batch({"a", "b"}).wait();
    log.append_batch(std::vector<inkstone::bytes>{"c", "d"}).wait();
    const std::vector<std::string> texts{"k", "l"};
    CHECK(log.append_batch(texts).wait() == log.last());
    CHECK(log.append_batch(texts, std::nothrow)->wait() == log.last());
    CHECK(log.reader().get(log.last()) == "l");
    { auto let_go = log.append("let go"); }
    // Each form with exceptions has one without, and the reverse.
    CHECK(log.append_parts({"in ", "parts"}, std::nothrow)->wait() ==
          log.try_append_parts({"in ", "parts"}, std::nothrow)->wait() - 1);
    CHECK(log.append_batch({"e", "f"}, std::nothrow)->wait());
    CHECK(log.append_batch(std::vector<inkstone::bytes>{"g"}, std::nothrow)->wait());
    const inkstone::bytes parts[] = {"h", "i"};
    CHECK(log.append_parts(parts, 2).wait() && log.try_append_parts(parts, 2).wait());
    CHECK(log.append_batch(parts, 2).wait());
    const inkstone_bytes part = {"j", 1};
    const inkstone_parts whole = {&part, 1};
    CHECK(log.append_batch_parts(&whole, 1).wait());
    log.reader().end_of_log();
    CHECK(inkstone::keep_records(path, 1) && inkstone::keep_bytes(path, 1));
    CHECK(inkstone::keep_seconds(path, 1));
    log.sync();
    CHECK(log.wait_durable(log.last()) && log.last() == 64 * 40 + 21);
    auto cursor = log.reader().from(1);
    std::uint64_t read = 0;
    while (auto record = cursor.next()) CHECK(record->lsn() == ++read);
    CHECK(read == log.last() && !cursor.next_within(1ms));
#if defined(__cpp_lib_span)
    const unsigned char some[] = {1, 2, 3};
    log.append_durable(std::span<const unsigned char>(some));
    CHECK(cursor.next()->span().size() == 3);
#endif
    log.close();
    CHECK(called == 64 * 20 && kept.use_count() == 1);
    try {
        log.append_durable("x");
        CHECK(false && "a closed log throws");
    } catch (const std::exception &error) {
        CHECK(std::string(error.what()) == "the log is closed: open it again to continue");
    }
    inkstone::reader outside(path);
    CHECK(outside.get(1).size() > 0);
    CHECK(inkstone::verify(path).is_intact);
}
#endif

static void streams_of_cpp(const std::string &path) {
    auto opened = inkstone::streams::open(path, std::nothrow, inkstone::options::small());
    const auto &streams = *std::as_const(opened);
    inkstone::batch batch;
    std::vector<std::uint64_t> numbers;
    batch.create(7, 1)
        .append(7, "one")
        .append_at(7, 2, "two"s)
        .note(7, "a place")
        .create(9, 5)
        .remove(9);
    CHECK(streams.apply(batch, std::nothrow, &numbers)->wait(std::nothrow));
    CHECK(numbers == std::vector<std::uint64_t>({1, 2}));
    auto reader = streams.reader(std::nothrow);
    CHECK(*reader->get(7, 1, std::nothrow) == "one" && *reader->note(7, std::nothrow) == "a place");
    CHECK(*reader->bounds(7, std::nothrow) == std::pair(std::uint64_t{1}, std::uint64_t{3}));
    CHECK(*reader->ids(0, 10, std::nothrow) == std::vector<std::uint64_t>({7}));
    auto cursor = reader->from(7, 2, std::nothrow);
    CHECK((*cursor->next(std::nothrow))->text() == "two" && !*cursor->next(std::nothrow));
    CHECK(streams.apply(batch.clear().truncate_before(7, 2).truncate_after(7, 2), std::nothrow)
              ->wait(std::nothrow));
    const auto gone = reader->get(7, 1, std::nothrow);
    CHECK(gone.code() == INKSTONE_TRUNCATED_BEFORE && gone.error().stream() == std::uint64_t{7});
    CHECK(gone.error().number() == std::uint64_t{2});
    /* A null pointer is no empty record, and nothing of its batch is made. */
    const char *null = nullptr;
    const auto refused =
        streams.apply(batch.clear().append(7, "x").append(7, null), std::nothrow, &numbers);
    CHECK(refused.code() == INKSTONE_INVALID && numbers.size() == 2);
    auto moved = std::move(batch);
    CHECK(streams.apply(batch, std::nothrow).code() == INKSTONE_INVALID); // NOLINT: moved from.
    std::uint64_t number = 0;
    CHECK(streams.apply(moved.clear().restart_at(7, 50), std::nothrow));
    CHECK(streams.append(7, "fifty", std::nothrow, &number) && number == 50);
    CHECK(streams.sync(std::nothrow));
    CHECK(streams.stats_json(std::nothrow)->find("\"streams\":1,") != std::string::npos);
    CHECK(streams.close(std::nothrow));
    CHECK(streams.append(7, "x", std::nothrow).code() == INKSTONE_CLOSED);
    auto outside = inkstone::streams_reader::open(path, std::nothrow);
    CHECK(*outside->get(7, 50, std::nothrow) == "fifty");
#if INKSTONE_EXCEPTIONS
    inkstone::streams thrown(path);
    thrown.append(7, "more", &number).wait();
    thrown.apply(moved.clear().note(7, "x")).wait();
    auto following = thrown.reader().from(7, number);
    CHECK(following.next()->number() == 51 && !following.next_within(1ms));
    CHECK(thrown.reader().note(7) == "x");
    try {
        thrown.append(8, "x").wait();
        CHECK(false && "an unknown stream throws");
    } catch (const inkstone::error &error) {
        CHECK(error.code() == INKSTONE_NO_STREAM && error.stream() == std::uint64_t{8});
        CHECK(!error.number());
    }
    thrown.close();
#endif
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    streams_of_cpp(std::string(arguments[1]) + "/streams");
    without_exceptions(std::string(arguments[1]) + "/returned");
    every_kind_of_bytes(std::string(arguments[1]) + "/bytes");
    zero_bytes(std::string(arguments[1]) + "/zero");
#if INKSTONE_EXCEPTIONS
    with_exceptions(std::string(arguments[1]) + "/thrown");
#endif
    std::puts("the C++ door does what it says");
    return 0;
}

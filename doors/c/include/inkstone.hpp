/*
 * Inkstone, a crash-safe append-only log: the C++ door. C++17, this header alone, on inkstone.h,
 * which says what each call promises: who owns what, which threads may call it, what is durable on
 * return.
 *
 *     inkstone::log log("orders");
 *     std::uint64_t lsn = log.append_durable("one record");
 *     for (auto cursor = log.reader().from(lsn); auto record = cursor.next();) use(record->text());
 *
 * Every call that can fail has two forms. `log.sync()` throws inkstone::error.
 * `log.sync(std::nothrow)` returns an inkstone::result, which has the value or the error. With
 * -fno-exceptions only the second form exists.
 *
 * Handles close and free themselves, move, and do not copy. A moved-from handle is empty: calls on
 * it are INKSTONE_INVALID. Functions that are called back must not throw: that ends the process
 * (std::terminate).
 */
#ifndef INKSTONE_HPP
#define INKSTONE_HPP

#include "inkstone.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#if __has_include(<span>) && __cplusplus >= 202002L
#include <span>
#endif

#if defined(__cpp_exceptions)
#define INKSTONE_EXCEPTIONS 1
#else
#define INKSTONE_EXCEPTIONS 0
#endif

namespace inkstone {

/** The code of a failed call, with its error object. */
class error : public std::exception {
public:
    /** Takes the object, which may be NULL. */
    explicit error(inkstone_code code, inkstone_error *object = nullptr) noexcept
        : code_(code), object_(object, inkstone_error_free) {}
    /** INKSTONE_INVALID. `words` must outlive the error. */
    explicit error(const char *words) noexcept : code_(INKSTONE_INVALID), words_(words) {}
    error(const error &) = default;
    error &operator=(const error &) = default;
    inkstone_code code() const noexcept { return code_; }
    /** What happened, to what, and what to do. */
    const char *what() const noexcept override {
        if (object_) return inkstone_error_message(object_.get());
        return words_ ? words_ : inkstone_code_name(code_);
    }
    const char *advice() const noexcept { return inkstone_error_advice(object_.get()); }
    /** The file or directory; empty if there is none. */
    std::string_view path() const noexcept {
        const char *path = inkstone_error_path(object_.get());
        return path == nullptr ? std::string_view() : std::string_view(path);
    }
    std::optional<std::uint64_t> offset() const noexcept {
        return number_of(inkstone_error_offset);
    }
    std::optional<std::uint64_t> lsn() const noexcept { return number_of(inkstone_error_lsn); }
    /** errno, or 0. */
    int os() const noexcept { return inkstone_error_os(object_.get()); }
    /** The stream that it is about, and the number in it: inkstone_error_number. */
    std::optional<std::uint64_t> stream() const noexcept {
        return number_of(inkstone_error_stream);
    }
    std::optional<std::uint64_t> number() const noexcept {
        return number_of(inkstone_error_number);
    }
    bool is_retryable() const noexcept { return inkstone_error_is_retryable(object_.get()); }

private:
    std::optional<std::uint64_t> number_of(decltype(inkstone_error_lsn) *ask) const noexcept {
        std::uint64_t number = 0;
        return ask(object_.get(), &number) ? std::optional(number) : std::nullopt;
    }
    inkstone_code code_;
    const char *words_ = nullptr;
    /* Shared, because exceptions are copied. */
    std::shared_ptr<inkstone_error> object_{};
};

namespace detail {
[[noreturn]] inline void fail(const error &error) {
#if INKSTONE_EXCEPTIONS
    throw error;
#else
    std::fprintf(stderr, "inkstone: %s\n", error.what());
    std::abort();
#endif
}
struct nothing {};
} // namespace detail

/** The value of a call, or its error. */
template <class T = void> class [[nodiscard]] result {
    using value_type = std::conditional_t<std::is_void_v<T>, detail::nothing, T>;

public:
    result(value_type value) : value_(std::move(value)) {}
    result(inkstone::error error) : error_(std::move(error)) {}
    bool has_value() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }
    /** INKSTONE_OK if there is a value. */
    inkstone_code code() const noexcept { return error_ ? error_->code() : INKSTONE_OK; }
    /** The error. Ask only if there is no value. */
    const inkstone::error &error() const { return *error_; }
    /** The value; throws the error if there is none (without exceptions: ends the process). */
    decltype(auto) value() & {
        if (!value_) detail::fail(*error_);
        if constexpr (!std::is_void_v<T>) return (*value_);
    }
    decltype(auto) value() const & {
        if (!value_) detail::fail(*error_);
        if constexpr (!std::is_void_v<T>) return (*value_);
    }
    T value() && {
        if (!value_) detail::fail(*error_);
        if constexpr (!std::is_void_v<T>) return std::move(*value_);
    }
    decltype(auto) operator*() & { return value(); }
    decltype(auto) operator*() const & { return value(); }
    T operator*() && { return std::move(*this).value(); }
    auto operator->() { return &value(); }
    auto operator->() const { return &value(); }

private:
    std::optional<value_type> value_{};
    std::optional<inkstone::error> error_{};
};

/** Bytes to append: a literal or other text up to its zero byte, a place and a size, or what has
 *  data() and size() of elements of one byte: std::string, std::span, std::array, std::vector. */
class bytes {
public:
    bytes(const void *data, std::size_t size) noexcept : bytes_{data, size} {}
    bytes(std::string_view text) noexcept : bytes(text.data(), text.size()) {}
    /** A null pointer gets a size of 1, so that the call is INKSTONE_INVALID and not an empty
     *  record. */
    bytes(const char *text) noexcept
        : bytes(text, text == nullptr ? 1 : std::string_view(text).size()) {}
    bytes(std::nullptr_t) = delete;
    template <class All,
              class Byte = std::remove_reference_t<decltype(*std::declval<const All &>().data())>,
              class = decltype(std::declval<const All &>().size()),
              class = std::enable_if_t<sizeof(Byte) == 1 && std::is_trivially_copyable_v<Byte> &&
                                       std::is_convertible_v<Byte *, const void *>>>
    bytes(const All &all) noexcept : bytes(all.data(), static_cast<std::size_t>(all.size())) {}
    const void *data() const noexcept { return bytes_.data; }
    std::size_t size() const noexcept { return bytes_.size; }

private:
    inkstone_bytes bytes_;
};
static_assert(sizeof(bytes) == sizeof(inkstone_bytes) && std::is_standard_layout_v<bytes>,
              "an array of one is one of the other");

/** A record, borrowed from its cursor: valid until the next call on it. */
class record {
public:
    explicit record(const inkstone_record &found) noexcept : record_(found) {}
    std::uint64_t lsn() const noexcept { return record_.lsn; }
    const void *data() const noexcept { return record_.data; }
    std::size_t size() const noexcept { return record_.size; }
    std::string_view text() const noexcept { return {static_cast<const char *>(data()), size()}; }
#if defined(__cpp_lib_span)
    std::span<const std::byte> span() const noexcept {
        return {static_cast<const std::byte *>(data()), size()};
    }
#endif

private:
    inkstone_record record_;
};

/** Waits for ever. */
inline constexpr std::chrono::microseconds forever{INT64_MAX};

namespace detail {
/** Owns a C handle. */
template <class T, void (*Free)(T *)> struct freed {
    void operator()(T *handle) const noexcept { Free(handle); }
};
template <class T, void (*Free)(T *)> using owned = std::unique_ptr<T, freed<T, Free>>;

/** Makes a call, whose last argument is the place for its error. It is named with its namespace
 *  below, as a program may have a `failed` of its own for arguments of C's types. */
template <class Call, class... Args> std::optional<error> failed(Call *call, Args... args) {
    inkstone_error *object = nullptr;
    const inkstone_code code = call(args..., &object);
    if (code == INKSTONE_OK) return std::nullopt;
    return error(code, object);
}
template <class Call, class... Args> result<void> done(Call *call, Args... args) {
    if (auto why = detail::failed(call, args...)) return *std::move(why);
    return nothing{};
}
/** What a call writes to the place before that for its error. */
template <class Call> struct written;
template <class... Args> struct written<inkstone_code(Args...)> {
    using place = std::tuple_element_t<sizeof...(Args) - 2, std::tuple<Args...>>;
    using type = std::remove_pointer_t<place>;
};
/** What is made of that. */
template <class Made, class Call, class... Args> result<Made> made(Call *call, Args... args) {
    typename written<Call>::type raw{};
    if (auto why = detail::failed(call, args..., &raw)) return *std::move(why);
    return Made(raw);
}
/** A text that the library makes. */
template <class Call, class... Args> result<std::string> text(Call *call, Args... args) {
    char *raw = nullptr;
    if (auto why = detail::failed(call, args..., &raw)) return *std::move(why);
    owned<char, inkstone_text_free> owner(raw);
    return std::string(raw);
}
/** Bytes that the library makes. */
template <class Call, class... Args> result<std::string> found(Call *call, Args... args) {
    inkstone_bytes raw{};
    if (auto why = detail::failed(call, args..., &raw)) return *std::move(why);
    owned<inkstone_bytes, inkstone_bytes_free> owner(&raw);
    return std::string(static_cast<const char *>(raw.data), raw.size);
}
/** The next record of a cursor; none if it is not durable yet. */
template <class Record, class Call, class... Args>
result<std::optional<Record>> next(Call *call, Args... args) {
    typename written<Call>::type raw{};
    auto why = detail::failed(call, args..., &raw);
    if (!why) return std::optional(Record(raw));
    if (why->code() == INKSTONE_NOT_YET) return std::optional<Record>();
    return *std::move(why);
}
/** The error of a text with a zero byte in it: C would take what stands before that byte. */
inline std::optional<error> cut(const std::string &text, const char *words) {
    if (text.find('\0') == std::string::npos) return std::nullopt;
    return error(words);
}
inline std::optional<error> cut(const std::string &path) {
    return cut(path, "a path has a zero byte in it: no file has such a name");
}
template <class Function>
void call(void *context, std::uint64_t lsn, const inkstone_error *error) noexcept {
    std::unique_ptr<Function> function(static_cast<Function *>(context));
    (*function)(lsn, error);
}
/** Hands a function over, which is called once and deleted then. */
template <class Function, class Hand, class Of>
result<void> called(Function function, Hand *hand, Of of) {
    auto kept = std::make_unique<Function>(std::move(function));
    auto outcome = detail::done(hand, of, call<Function>, static_cast<void *>(kept.get()));
    /* The call has it, and may have deleted it; after a bug of the library nobody knows. */
    if (outcome || outcome.code() == INKSTONE_PANICKED) static_cast<void>(kept.release());
    return outcome;
}
inline std::uint64_t microseconds(std::chrono::microseconds time) noexcept {
    return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}
inline std::uint64_t limit(std::chrono::microseconds timeout) noexcept {
    return timeout == forever ? UINT64_MAX : microseconds(timeout);
}
} // namespace detail

/** Options of a log. Setters return the options. What they mean, and their defaults:
 *  inkstone_options_set_... */
class options {
public:
    options() : options_(inkstone_options_new()) {}
    /** For many small logs, and for tests. */
    static options small() { return options(inkstone_options_small()); }

#define INKSTONE_SETTER(name, type, set, value_of)                                                 \
    options &name(type value) & { return set(get(), value_of(value)), *this; }                     \
    options name(type value) && { return std::move(name(value)); }
#define INKSTONE_OPTION(name, type) INKSTONE_SETTER(name, type, inkstone_options_set_##name, type)
#define INKSTONE_TIME(name)                                                                        \
    INKSTONE_SETTER(name, std::chrono::microseconds, inkstone_options_set_##name##_us,             \
                    detail::microseconds)
    INKSTONE_OPTION(segment_bytes, std::uint64_t)
    INKSTONE_OPTION(record_bytes_max, std::size_t)
    INKSTONE_OPTION(create, bool)
    INKSTONE_OPTION(expect_durable, std::uint64_t)
    INKSTONE_OPTION(begin_at, std::uint64_t)
    INKSTONE_OPTION(own_thread, bool)
    INKSTONE_OPTION(disk_budget_bytes, std::uint64_t)
    INKSTONE_TIME(periodic)
    INKSTONE_TIME(slow_commit)
    INKSTONE_OPTION(file_mode, std::uint32_t)
#undef INKSTONE_OPTION
#undef INKSTONE_TIME
#undef INKSTONE_SETTER

    /** An option for experts, by its name: inkstone_options_set has the names. */
    result<void> set(const char *name, const char *value, std::nothrow_t) {
        return detail::done(inkstone_options_set, options_.get(), name, value);
    }
#if INKSTONE_EXCEPTIONS
    options &set(const char *name, const char *value) & {
        return set(name, value, std::nothrow).value(), *this;
    }
    options set(const char *name, const char *value) && { return std::move(set(name, value)); }
#endif

    /** `function(const inkstone_event *)` is called for every event, on several threads at the same
     *  time. */
    template <class Function> options &listener(Function function) & {
        auto kept = std::make_unique<Function>(std::move(function));
        const auto call = [](void *context, const inkstone_event *event) noexcept {
            (*static_cast<Function *>(context))(event);
        };
        const auto drop = [](void *context) noexcept { delete static_cast<Function *>(context); };
        inkstone_options_set_listener(get(), call, kept.release(), drop);
        return *this;
    }
    template <class Function> options listener(Function function) && {
        return std::move(listener(std::move(function)));
    }

    result<void> check(std::nothrow_t) const {
        return detail::done(inkstone_options_check, options_.get());
    }
#if INKSTONE_EXCEPTIONS
    void check() const { check(std::nothrow).value(); }
#endif
    inkstone_options *get() const noexcept { return options_.get(); }
    /** The error of options that were moved away: to C, NULL would mean the defaults. */
    std::optional<error> moved_from() const {
        return options_ ? std::nullopt : detail::failed(inkstone_options_check, options_.get());
    }

private:
    explicit options(inkstone_options *made) : options_(made) {}
    detail::owned<inkstone_options, inkstone_options_free> options_;
};

namespace detail {
template <class Opened, class Open>
result<Opened> opened(Open *open, const std::string &path, const options &options) {
    if (auto why = cut(path)) return *std::move(why);
    if (auto why = options.moved_from()) return *std::move(why);
    return detail::made<Opened>(open, path.c_str(), options.get());
}
} // namespace detail

/** A record or batch that was appended. Destroyed without wait() or on_durable(), it is let go. It
 *  must not outlive its log. */
class [[nodiscard]] pending {
public:
    explicit pending(const inkstone_pending &of) noexcept : pending_(of) {}
    pending(pending &&other) noexcept : pending_(std::exchange(other.pending_, {})) {}
    pending &operator=(pending &&other) noexcept {
        if (this == &other) return *this;
        inkstone_let_go(&pending_);
        pending_ = std::exchange(other.pending_, {});
        return *this;
    }
    ~pending() { inkstone_let_go(&pending_); }
    std::uint64_t first_lsn() const noexcept { return pending_.first_lsn; }
    std::uint64_t lsn() const noexcept { return pending_.lsn; }

    result<std::uint64_t> wait(std::nothrow_t) {
        if (auto why = detail::failed(inkstone_wait, &pending_)) return *std::move(why);
        return pending_.lsn;
    }
    /** `function(std::uint64_t lsn, const inkstone_error *)` is called once; without an error the
     *  record is durable. */
    template <class Function> result<void> on_durable(Function function, std::nothrow_t) {
        return detail::called(std::move(function), inkstone_on_durable, &pending_);
    }
#if INKSTONE_EXCEPTIONS
    std::uint64_t wait() { return wait(std::nothrow).value(); }
    template <class Function> void on_durable(Function function) {
        on_durable(std::move(function), std::nothrow).value();
    }
#endif

private:
    inkstone_pending pending_;
};

/** A position from which records are read in order. One thread at a time. */
class cursor {
public:
    explicit cursor(inkstone_cursor *taken) noexcept : cursor_(taken) {}
    /** The next record; none when it is not durable yet. */
    result<std::optional<record>> next(std::nothrow_t) {
        return detail::next<record>(inkstone_cursor_next, cursor_.get());
    }
    /** The next record; none when `timeout` is over. */
    result<std::optional<record>> next_within(std::chrono::microseconds timeout, std::nothrow_t) {
        return detail::next<record>(inkstone_cursor_next_within, cursor_.get(),
                                    detail::limit(timeout));
    }
#if INKSTONE_EXCEPTIONS
    std::optional<record> next() { return next(std::nothrow).value(); }
    std::optional<record> next_within(std::chrono::microseconds timeout) {
        return next_within(timeout, std::nothrow).value();
    }
#endif
    void seek(std::uint64_t lsn) noexcept { inkstone_cursor_seek(cursor_.get(), lsn); }
    std::uint64_t next_lsn() const noexcept { return inkstone_cursor_next_lsn(cursor_.get()); }
    std::uint64_t durable() const noexcept { return inkstone_cursor_durable(cursor_.get()); }

private:
    detail::owned<inkstone_cursor, inkstone_cursor_free> cursor_;
};

/** Reads durable records. */
class reader {
public:
    explicit reader(inkstone_reader *taken) noexcept : reader_(taken) {}
    /** Opens a log that another process may be writing. */
    static result<reader> open(const std::string &path, std::nothrow_t,
                               const options &options = {}) {
        return detail::opened<reader>(inkstone_reader_open, path, options);
    }
    std::uint64_t first() const noexcept { return inkstone_reader_first(reader_.get()); }
    std::uint64_t durable() const noexcept { return inkstone_reader_durable(reader_.get()); }
    result<void> end_of_log(std::nothrow_t) const {
        return detail::done(inkstone_reader_end_of_log, reader_.get());
    }
    result<std::string> get(std::uint64_t lsn, std::nothrow_t) const {
        return detail::found(inkstone_reader_get, reader_.get(), lsn);
    }
    result<cursor> from(std::uint64_t lsn, std::nothrow_t) const {
        return detail::made<cursor>(inkstone_cursor_new, reader_.get(), lsn);
    }
    result<std::string> recovery_json(std::nothrow_t) const {
        return detail::text(inkstone_reader_recovery_json, reader_.get());
    }
#if INKSTONE_EXCEPTIONS
    explicit reader(const std::string &path, const options &options = {})
        : reader(open(path, std::nothrow, options).value()) {}
    void end_of_log() const { end_of_log(std::nothrow).value(); }
    std::string get(std::uint64_t lsn) const { return get(lsn, std::nothrow).value(); }
    cursor from(std::uint64_t lsn) const { return from(lsn, std::nothrow).value(); }
    std::string recovery_json() const { return recovery_json(std::nothrow).value(); }
#endif

private:
    detail::owned<inkstone_reader, inkstone_reader_free> reader_;
};

/** A log that is open for writing. All threads may use it. Its destructor closes it and loses
 *  errors: call close(). */
class log {
public:
    explicit log(inkstone_log *taken) noexcept : log_(taken) {}
    static result<log> open(const std::string &path, std::nothrow_t, const options &options = {}) {
        return detail::opened<log>(inkstone_open, path, options);
    }
    result<void> close(std::nothrow_t) const {
        return detail::done(inkstone_close, get());
    }

    result<pending> append(bytes data, std::nothrow_t) const {
        return detail::made<pending>(inkstone_append, get(), data.data(), data.size());
    }
    result<pending> try_append(bytes data, std::nothrow_t) const {
        return detail::made<pending>(inkstone_try_append, get(), data.data(), data.size());
    }
    /** One record of `count` parts. */
    result<pending> append_parts(const bytes *parts, std::size_t count, std::nothrow_t) const {
        return detail::made<pending>(inkstone_append_parts, get(), plain(parts), count);
    }
    result<pending> try_append_parts(const bytes *parts, std::size_t count, std::nothrow_t) const {
        return detail::made<pending>(inkstone_try_append_parts, get(), plain(parts), count);
    }
    /** `count` records, all or none. */
    result<pending> append_batch(const bytes *records, std::size_t count, std::nothrow_t) const {
        return detail::made<pending>(inkstone_append_batch, get(), plain(records), count);
    }
    result<pending> append_parts(std::initializer_list<bytes> parts, std::nothrow_t) const {
        return append_parts(parts.begin(), parts.size(), std::nothrow);
    }
    result<pending> try_append_parts(std::initializer_list<bytes> parts, std::nothrow_t) const {
        return try_append_parts(parts.begin(), parts.size(), std::nothrow);
    }
    result<pending> append_batch(std::initializer_list<bytes> records, std::nothrow_t) const {
        return append_batch(records.begin(), records.size(), std::nothrow);
    }
    /** Of `bytes`, or of what `bytes` can be made of: std::vector<std::string>, say. */
    template <class Record, class = std::enable_if_t<std::is_convertible_v<const Record &, bytes>>>
    result<pending> append_batch(const std::vector<Record> &records, std::nothrow_t) const {
        if constexpr (std::is_same_v<Record, bytes>) {
            return append_batch(records.data(), records.size(), std::nothrow);
        } else {
            return append_batch(std::vector<bytes>(records.begin(), records.end()), std::nothrow);
        }
    }
    /** `count` records in parts, all or none. */
    result<pending> append_batch_parts(const inkstone_parts *records, std::size_t count,
                                       std::nothrow_t) const {
        return detail::made<pending>(inkstone_append_batch_parts, get(), records, count);
    }
    result<std::uint64_t> append_unwaited(bytes data, std::nothrow_t) const {
        return detail::made<std::uint64_t>(inkstone_append_unwaited, get(), data.data(),
                                           data.size());
    }
    result<std::uint64_t> append_durable(bytes data, std::nothrow_t) const {
        return detail::made<std::uint64_t>(inkstone_append_durable, get(), data.data(),
                                           data.size());
    }
    result<std::uint64_t> sync(std::nothrow_t) const {
        return detail::made<std::uint64_t>(inkstone_sync, get());
    }
    /** Whether the watermark reached `lsn` within `timeout`. */
    result<bool> wait_durable(std::uint64_t lsn, std::chrono::microseconds timeout,
                              std::nothrow_t) const {
        auto why = detail::failed(inkstone_wait_durable, get(), lsn, detail::limit(timeout));
        if (why && why->code() != INKSTONE_NOT_YET) return *std::move(why);
        return !why;
    }
    /** `function(std::uint64_t watermark, const inkstone_error *)` is called once:
     *  inkstone_on_watermark. */
    template <class Function> result<void> on_watermark(Function function, std::nothrow_t) const {
        return detail::called(std::move(function), inkstone_on_watermark, get());
    }
    result<void> truncate_before(std::uint64_t first, std::nothrow_t) const {
        return detail::done(inkstone_truncate_before, get(), first);
    }
    result<void> truncate_after(std::uint64_t last, std::nothrow_t) const {
        return detail::done(inkstone_truncate_after, get(), last);
    }
    result<inkstone::reader> reader(std::nothrow_t) const {
        return detail::made<inkstone::reader>(inkstone_reader_of, get());
    }
    result<std::string> recovery_json(std::nothrow_t) const {
        return detail::text(inkstone_recovery_json, get());
    }
    result<std::string> choice(std::nothrow_t) const {
        return detail::text(inkstone_choice_text, get());
    }
    result<std::string> stats_json(std::nothrow_t) const {
        return detail::text(inkstone_stats_json, get());
    }
    result<std::string> stats_prometheus(const std::string &name, std::nothrow_t) const {
        if (auto why = detail::cut(name, "the name has a zero byte in it")) return *std::move(why);
        return detail::text(inkstone_stats_prometheus, get(), name.c_str());
    }
#if INKSTONE_EXCEPTIONS
    explicit log(const std::string &path, const options &options = {})
        : log(open(path, std::nothrow, options).value()) {}
    void close() const { close(std::nothrow).value(); }
    pending append(bytes data) const { return append(data, std::nothrow).value(); }
    pending try_append(bytes data) const { return try_append(data, std::nothrow).value(); }
    pending append_parts(const bytes *parts, std::size_t count) const {
        return append_parts(parts, count, std::nothrow).value();
    }
    pending append_parts(std::initializer_list<bytes> parts) const {
        return append_parts(parts, std::nothrow).value();
    }
    pending try_append_parts(const bytes *parts, std::size_t count) const {
        return try_append_parts(parts, count, std::nothrow).value();
    }
    pending try_append_parts(std::initializer_list<bytes> parts) const {
        return try_append_parts(parts, std::nothrow).value();
    }
    pending append_batch(const bytes *records, std::size_t count) const {
        return append_batch(records, count, std::nothrow).value();
    }
    pending append_batch(std::initializer_list<bytes> records) const {
        return append_batch(records, std::nothrow).value();
    }
    template <class Record, class = std::enable_if_t<std::is_convertible_v<const Record &, bytes>>>
    pending append_batch(const std::vector<Record> &records) const {
        return append_batch(records, std::nothrow).value();
    }
    pending append_batch_parts(const inkstone_parts *records, std::size_t count) const {
        return append_batch_parts(records, count, std::nothrow).value();
    }
    std::uint64_t append_unwaited(bytes data) const {
        return append_unwaited(data, std::nothrow).value();
    }
    std::uint64_t append_durable(bytes data) const {
        return append_durable(data, std::nothrow).value();
    }
    std::uint64_t sync() const { return sync(std::nothrow).value(); }
    bool wait_durable(std::uint64_t lsn, std::chrono::microseconds timeout = forever) const {
        return wait_durable(lsn, timeout, std::nothrow).value();
    }
    template <class Function> void on_watermark(Function function) const {
        on_watermark(std::move(function), std::nothrow).value();
    }
    void truncate_before(std::uint64_t first) const {
        truncate_before(first, std::nothrow).value();
    }
    void truncate_after(std::uint64_t last) const { truncate_after(last, std::nothrow).value(); }
    inkstone::reader reader() const { return reader(std::nothrow).value(); }
    std::string recovery_json() const { return recovery_json(std::nothrow).value(); }
    std::string choice() const { return choice(std::nothrow).value(); }
    std::string stats_json() const { return stats_json(std::nothrow).value(); }
    std::string stats_prometheus(const std::string &name) const {
        return stats_prometheus(name, std::nothrow).value();
    }
#endif
    std::uint64_t first() const noexcept { return inkstone_first(log_.get()); }
    std::uint64_t durable() const noexcept { return inkstone_durable(log_.get()); }
    std::uint64_t last() const noexcept { return inkstone_last(log_.get()); }
    std::uint64_t head_first() const noexcept { return inkstone_head_first(log_.get()); }
    inkstone_log *get() const noexcept { return log_.get(); }

private:
    static const inkstone_bytes *plain(const bytes *all) noexcept {
        return reinterpret_cast<const inkstone_bytes *>(all);
    }
    detail::owned<inkstone_log, inkstone_log_free> log_;
};

/** A record of a stream, borrowed from its cursor: valid until the next call on it. */
class stream_record {
public:
    explicit stream_record(const inkstone_streams_record &found) noexcept : record_(found) {}
    std::uint64_t number() const noexcept { return record_.number; }
    const void *data() const noexcept { return record_.data; }
    std::size_t size() const noexcept { return record_.size; }
    std::string_view text() const noexcept { return {static_cast<const char *>(data()), size()}; }

private:
    inkstone_streams_record record_;
};

/** A position in a stream from which records are read in order. One thread at a time. */
class streams_cursor {
public:
    explicit streams_cursor(inkstone_streams_cursor *taken) noexcept : cursor_(taken) {}
    /** The next record; none when it is not durable yet. */
    result<std::optional<stream_record>> next(std::nothrow_t) {
        return detail::next<stream_record>(inkstone_streams_cursor_next, cursor_.get());
    }
    /** The next record; none when `timeout` is over. */
    result<std::optional<stream_record>> next_within(std::chrono::microseconds timeout,
                                                     std::nothrow_t) {
        return detail::next<stream_record>(inkstone_streams_cursor_next_within, cursor_.get(),
                                           detail::limit(timeout));
    }
#if INKSTONE_EXCEPTIONS
    std::optional<stream_record> next() { return next(std::nothrow).value(); }
    std::optional<stream_record> next_within(std::chrono::microseconds timeout) {
        return next_within(timeout, std::nothrow).value();
    }
#endif
    void seek(std::uint64_t number) noexcept {
        inkstone_streams_cursor_seek(cursor_.get(), number);
    }

private:
    detail::owned<inkstone_streams_cursor, inkstone_streams_cursor_free> cursor_;
};

/** Reads durable records of streams. */
class streams_reader {
public:
    explicit streams_reader(inkstone_streams_reader *taken) noexcept : reader_(taken) {}
    /** Opens streams that another process may be writing. */
    static result<streams_reader> open(const std::string &path, std::nothrow_t,
                                       const options &options = {}) {
        return detail::opened<streams_reader>(inkstone_streams_reader_open, path, options);
    }
    /** The first number that is left, and the number that the next record gets. */
    result<std::pair<std::uint64_t, std::uint64_t>> bounds(std::uint64_t stream,
                                                           std::nothrow_t) const {
        std::pair<std::uint64_t, std::uint64_t> found;
        if (auto why = detail::failed(inkstone_streams_bounds, reader_.get(), stream, &found.first,
                                      &found.second)) {
            return *std::move(why);
        }
        return found;
    }
    result<std::string> note(std::uint64_t stream, std::nothrow_t) const {
        return detail::found(inkstone_streams_note, reader_.get(), stream);
    }
    result<std::string> get(std::uint64_t stream, std::uint64_t number, std::nothrow_t) const {
        return detail::found(inkstone_streams_get, reader_.get(), stream, number);
    }
    /** The ids from `from` on, in order, at most `count_max`. */
    result<std::vector<std::uint64_t>> ids(std::uint64_t from, std::size_t count_max,
                                           std::nothrow_t) const {
        std::vector<std::uint64_t> found(count_max);
        std::size_t count = 0;
        if (auto why = detail::failed(inkstone_streams_ids, reader_.get(), from, found.data(),
                                      found.size(), &count)) {
            return *std::move(why);
        }
        found.resize(count);
        return found;
    }
    result<streams_cursor> from(std::uint64_t stream, std::uint64_t number, std::nothrow_t) const {
        return detail::made<streams_cursor>(inkstone_streams_cursor_new, reader_.get(), stream,
                                            number);
    }
#if INKSTONE_EXCEPTIONS
    explicit streams_reader(const std::string &path, const options &options = {})
        : streams_reader(open(path, std::nothrow, options).value()) {}
    std::pair<std::uint64_t, std::uint64_t> bounds(std::uint64_t stream) const {
        return bounds(stream, std::nothrow).value();
    }
    std::string note(std::uint64_t stream) const { return note(stream, std::nothrow).value(); }
    std::string get(std::uint64_t stream, std::uint64_t number) const {
        return get(stream, number, std::nothrow).value();
    }
    std::vector<std::uint64_t> ids(std::uint64_t from, std::size_t count_max) const {
        return ids(from, count_max, std::nothrow).value();
    }
    streams_cursor from(std::uint64_t stream, std::uint64_t number) const {
        return from(stream, number, std::nothrow).value();
    }
#endif

private:
    detail::owned<inkstone_streams_reader, inkstone_streams_reader_free> reader_;
};

/** Changes of any number of streams, made together or not at all. One that is refused makes
 *  streams::apply fail. */
class batch {
public:
    batch() : batch_(inkstone_batch_new()) {}
    batch &create(std::uint64_t stream, std::uint64_t first) {
        return inkstone_batch_create(get(), stream, first), *this;
    }
    batch &append(std::uint64_t stream, bytes data) {
        return records_++, inkstone_batch_append(get(), stream, data.data(), data.size()), *this;
    }
    batch &append_at(std::uint64_t stream, std::uint64_t number, bytes data) {
        return records_++,
               inkstone_batch_append_at(get(), stream, number, data.data(), data.size()), *this;
    }
    batch &note(std::uint64_t stream, bytes data) {
        return inkstone_batch_note(get(), stream, data.data(), data.size()), *this;
    }
    batch &truncate_before(std::uint64_t stream, std::uint64_t first) {
        return inkstone_batch_truncate_before(get(), stream, first), *this;
    }
    batch &truncate_after(std::uint64_t stream, std::uint64_t last) {
        return inkstone_batch_truncate_after(get(), stream, last), *this;
    }
    batch &restart_at(std::uint64_t stream, std::uint64_t first) {
        return inkstone_batch_restart_at(get(), stream, first), *this;
    }
    batch &remove(std::uint64_t stream) { return inkstone_batch_remove(get(), stream), *this; }
    batch &clear() noexcept { return records_ = 0, inkstone_batch_clear(get()), *this; }
    /** How many records it appends, those that were refused included. */
    std::size_t records() const noexcept { return records_; }
    inkstone_batch *get() const noexcept { return batch_.get(); }

private:
    detail::owned<inkstone_batch, inkstone_batch_free> batch_;
    std::size_t records_ = 0;
};

/** Many streams in one log, open for writing. All threads may use it. Its destructor closes it and
 *  loses errors: call close(). */
class streams {
public:
    explicit streams(inkstone_streams *taken) noexcept : streams_(taken) {}
    static result<streams> open(const std::string &path, std::nothrow_t,
                                const options &options = {}) {
        return detail::opened<streams>(inkstone_streams_open, path, options);
    }
    result<void> close(std::nothrow_t) const {
        return detail::done(inkstone_streams_close, get());
    }
    /** One record; `number`, if it is given, gets its number. */
    result<pending> append(std::uint64_t stream, bytes data, std::nothrow_t,
                           std::uint64_t *number = nullptr) const {
        return detail::made<pending>(inkstone_streams_append, get(), stream, data.data(),
                                     data.size(), number);
    }
    /** All changes or none; `numbers`, if they are given, get the numbers of the records. */
    result<pending> apply(const batch &batch, std::nothrow_t,
                          std::vector<std::uint64_t> *numbers = nullptr) const {
        if (numbers != nullptr) numbers->assign(batch.records(), 0);
        std::uint64_t *to = numbers == nullptr ? nullptr : numbers->data();
        return detail::made<pending>(inkstone_streams_apply, get(), batch.get(), to);
    }
    result<void> sync(std::nothrow_t) const {
        return detail::done(inkstone_streams_sync, get());
    }
    result<streams_reader> reader(std::nothrow_t) const {
        return detail::made<streams_reader>(inkstone_streams_reader_of, get());
    }
    result<std::string> stats_json(std::nothrow_t) const {
        return detail::text(inkstone_streams_stats_json, get());
    }
#if INKSTONE_EXCEPTIONS
    explicit streams(const std::string &path, const options &options = {})
        : streams(open(path, std::nothrow, options).value()) {}
    void close() const { close(std::nothrow).value(); }
    pending append(std::uint64_t stream, bytes data, std::uint64_t *number = nullptr) const {
        return append(stream, data, std::nothrow, number).value();
    }
    pending apply(const batch &batch, std::vector<std::uint64_t> *numbers = nullptr) const {
        return apply(batch, std::nothrow, numbers).value();
    }
    void sync() const { sync(std::nothrow).value(); }
    streams_reader reader() const { return reader(std::nothrow).value(); }
    std::string stats_json() const { return stats_json(std::nothrow).value(); }
#endif
    inkstone_streams *get() const noexcept { return streams_.get(); }

private:
    detail::owned<inkstone_streams, inkstone_streams_free> streams_;
};

/** Whether the log in `path` is intact, with the report as JSON. */
struct report {
    bool is_intact = false;
    std::string json{};
};
namespace detail {
inline result<report> reported(decltype(inkstone_verify) *call, const std::string &path) {
    if (auto why = cut(path)) return *std::move(why);
    report made;
    auto json = detail::text(call, path.c_str(), &made.is_intact);
    if (!json) return json.error();
    made.json = std::move(json).value();
    return made;
}
} // namespace detail
inline result<report> verify(const std::string &path, std::nothrow_t) {
    return detail::reported(inkstone_verify, path);
}
/** The same from the headers and the last segment alone. */
inline result<report> look(const std::string &path, std::nothrow_t) {
    return detail::reported(inkstone_look, path);
}
/** Copies a log into a new one; the number of records. */
inline result<std::uint64_t> copy(const std::string &from, const std::string &to, std::nothrow_t,
                                  const options &options = {}) {
    for (const auto *path : {&from, &to}) {
        if (auto why = detail::cut(*path)) return *std::move(why);
    }
    if (auto why = options.moved_from()) return *std::move(why);
    return detail::made<std::uint64_t>(inkstone_copy, from.c_str(), to.c_str(), options.get());
}
/** What to keep of a log, for log::truncate_before: inkstone_keep_bytes. */
#define INKSTONE_KEEP(name)                                                                        \
    inline result<std::uint64_t> name(const std::string &path, std::uint64_t amount,               \
                                      std::nothrow_t) {                                            \
        if (auto why = detail::cut(path)) return *std::move(why);                                  \
        return detail::made<std::uint64_t>(inkstone_##name, path.c_str(), amount);                 \
    }
INKSTONE_KEEP(keep_bytes)
INKSTONE_KEEP(keep_records)
INKSTONE_KEEP(keep_seconds)
#undef INKSTONE_KEEP
#if INKSTONE_EXCEPTIONS
inline report verify(const std::string &path) { return verify(path, std::nothrow).value(); }
inline report look(const std::string &path) { return look(path, std::nothrow).value(); }
inline std::uint64_t copy(const std::string &from, const std::string &to,
                          const options &options = {}) {
    return copy(from, to, std::nothrow, options).value();
}
inline std::uint64_t keep_bytes(const std::string &path, std::uint64_t bytes) {
    return keep_bytes(path, bytes, std::nothrow).value();
}
inline std::uint64_t keep_records(const std::string &path, std::uint64_t records) {
    return keep_records(path, records, std::nothrow).value();
}
inline std::uint64_t keep_seconds(const std::string &path, std::uint64_t seconds) {
    return keep_seconds(path, seconds, std::nothrow).value();
}
#endif

} // namespace inkstone

#endif

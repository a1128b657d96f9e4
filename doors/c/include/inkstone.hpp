/*
 * Inkstone, a crash-safe append-only log: the C++ door. C++17, this header alone, on inkstone.h,
 * which says what each call promises: who owns what, which threads may call it, what is durable on
 * return.
 *
 *     auto log = inkstone::log::open("orders").value();
 *     std::uint64_t lsn = log.append_durable("one record").value();
 *
 * Every call that can fail returns an inkstone::result: the value or the error. `value()` throws
 * the error; with -fno-exceptions it ends the process, so such a program asks first.
 *
 * Handles close and free themselves, move, and do not copy. A moved-from handle is empty: calls on
 * it are INKSTONE_INVALID. Functions that are called back must not throw: that ends the process
 * (std::terminate).
 *
 * What is not here (streams, statistics, listeners, copies) is a call of C, with what get()
 * returns.
 */
#ifndef INKSTONE_HPP
#define INKSTONE_HPP

#include "inkstone.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

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
    /** The object, for inkstone_error_lsn and its like; NULL if there is none. */
    const inkstone_error *get() const noexcept { return object_.get(); }

private:
    inkstone_code code_;
    const char *words_ = nullptr;
    /* Shared, because exceptions are copied. */
    std::shared_ptr<inkstone_error> object_{};
};

namespace detail {
[[noreturn]] inline void fail(const error &error) {
#if defined(__cpp_exceptions)
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

private:
    inkstone_record record_;
};

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
template <class Function>
void call(void *context, std::uint64_t lsn, const inkstone_error *error) noexcept {
    std::unique_ptr<Function> function(static_cast<Function *>(context));
    (*function)(lsn, error);
}
} // namespace detail

/** Options of a log. What a setter refuses is the error of the opening. */
class options {
public:
    options() : options_(inkstone_options_new()) {}
    /** The option with this name: inkstone_options_set has the names. */
    template <class Value> options &set(const char *name, const Value &value) & {
        std::string text;
        if constexpr (std::is_same_v<Value, bool>) {
            text = value ? "true" : "false";
        } else if constexpr (std::is_integral_v<Value>) {
            text = std::to_string(value);
        } else {
            text = value;
        }
        auto why = detail::failed(inkstone_options_set, get(), name, text.c_str());
        if (why && !refused_) refused_ = std::move(why);
        return *this;
    }
    template <class Value> options set(const char *name, const Value &value) && {
        return std::move(set(name, value));
    }
    inkstone_options *get() const noexcept { return options_.get(); }
    /** What was refused first. To C, NULL would mean the defaults, so that options which were moved
     *  away are refused too. */
    std::optional<error> refused() const {
        if (refused_ || options_) return refused_;
        return error("these options were moved away");
    }

private:
    detail::owned<inkstone_options, inkstone_options_free> options_;
    std::optional<error> refused_{};
};

namespace detail {
template <class Opened, class Open>
result<Opened> opened(Open *open, const std::string &path, const options &options) {
    if (path.find('\0') != std::string::npos)
        return error("a path has a zero byte in it: no file has such a name");
    if (auto why = options.refused()) return *std::move(why);
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
    result<std::uint64_t> wait() {
        if (auto why = detail::failed(inkstone_wait, &pending_)) return *std::move(why);
        return pending_.lsn;
    }
    /** `function(std::uint64_t lsn, const inkstone_error *)` is called once and deleted then;
     *  without an error the record is durable. */
    template <class Function> result<void> on_durable(Function function) {
        auto kept = std::make_unique<Function>(std::move(function));
        auto outcome = detail::done(inkstone_on_durable, &pending_, detail::call<Function>,
                                    static_cast<void *>(kept.get()));
        /* The call has it, and may have deleted it; after a bug of the library nobody knows. */
        if (outcome || outcome.code() == INKSTONE_PANICKED) static_cast<void>(kept.release());
        return outcome;
    }

private:
    inkstone_pending pending_;
};

/** A position from which records are read in order. One thread at a time. */
class cursor {
public:
    explicit cursor(inkstone_cursor *taken) noexcept : cursor_(taken) {}
    /** The next record; none when it is not durable yet. */
    result<std::optional<record>> next() {
        auto found = detail::made<record>(inkstone_cursor_next, get());
        if (found) return std::optional(*found);
        if (found.code() == INKSTONE_NOT_YET) return std::optional<record>();
        return found.error();
    }
    /** For a consumer that restarts: `reader::from`. */
    inkstone_place place() const noexcept { return inkstone_cursor_place(get()); }
    inkstone_cursor *get() const noexcept { return cursor_.get(); }

private:
    detail::owned<inkstone_cursor, inkstone_cursor_free> cursor_;
};

/** Reads durable records. */
class reader {
public:
    explicit reader(inkstone_reader *taken) noexcept : reader_(taken) {}
    /** Opens a log that another process may be writing. */
    static result<reader> open(const std::string &path, const options &options = {}) {
        return detail::opened<reader>(inkstone_reader_open, path, options);
    }
    std::uint64_t first() const noexcept { return inkstone_reader_first(get()); }
    result<cursor> from(std::uint64_t lsn) const {
        return detail::made<cursor>(inkstone_cursor_new, get(), lsn);
    }
    result<cursor> from(inkstone_place place) const {
        return detail::made<cursor>(inkstone_cursor_from, get(), place);
    }
    inkstone_reader *get() const noexcept { return reader_.get(); }

private:
    detail::owned<inkstone_reader, inkstone_reader_free> reader_;
};

/** A log that is open for writing. All threads may use it. Its destructor closes it and loses
 *  errors: call close(). */
class log {
public:
    explicit log(inkstone_log *taken) noexcept : log_(taken) {}
    static result<log> open(const std::string &path, const options &options = {}) {
        return detail::opened<log>(inkstone_open, path, options);
    }
    result<void> close() const { return detail::done(inkstone_close, get()); }
    result<pending> append(bytes data) const {
        return detail::made<pending>(inkstone_append, get(), data.data(), data.size());
    }
    /** One record of several parts. */
    result<pending> append_parts(std::initializer_list<bytes> parts) const {
        return detail::made<pending>(inkstone_append_parts, get(), plain(parts.begin()),
                                     parts.size());
    }
    /** Several records, all or none. */
    result<pending> append_batch(std::initializer_list<bytes> records) const {
        return append_batch(records.begin(), records.size());
    }
    /** Of `bytes`, or of what `bytes` can be made of: std::vector<std::string>, say. */
    template <class Record, class = std::enable_if_t<std::is_convertible_v<const Record &, bytes>>>
    result<pending> append_batch(const std::vector<Record> &records) const {
        const std::vector<bytes> all(records.begin(), records.end());
        return append_batch(all.data(), all.size());
    }
    result<std::uint64_t> append_durable(bytes data) const {
        return detail::made<std::uint64_t>(inkstone_append_durable, get(), data.data(),
                                           data.size());
    }
    result<std::uint64_t> sync() const { return detail::made<std::uint64_t>(inkstone_sync, get()); }
    result<void> truncate_before(std::uint64_t first) const {
        return detail::done(inkstone_truncate_before, get(), first);
    }
    result<void> truncate_after(std::uint64_t last) const {
        return detail::done(inkstone_truncate_after, get(), last);
    }
    result<inkstone::reader> reader() const {
        return detail::made<inkstone::reader>(inkstone_reader_of, get());
    }
    std::uint64_t first() const noexcept { return inkstone_first(get()); }
    std::uint64_t durable() const noexcept { return inkstone_durable(get()); }
    std::uint64_t last() const noexcept { return inkstone_last(get()); }
    inkstone_log *get() const noexcept { return log_.get(); }

private:
    static const inkstone_bytes *plain(const bytes *all) noexcept {
        return reinterpret_cast<const inkstone_bytes *>(all);
    }
    result<pending> append_batch(const bytes *records, std::size_t count) const {
        return detail::made<pending>(inkstone_append_batch, get(), plain(records), count);
    }
    detail::owned<inkstone_log, inkstone_log_free> log_;
};

} // namespace inkstone

#endif

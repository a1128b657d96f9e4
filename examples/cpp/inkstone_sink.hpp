// A sink for spdlog whose lines survive SIGKILL. Copy it: it needs inkstone_text.h alone.
//
//     auto sink = std::make_shared<inkstone_sink_mt>("app.log", "survive=kill");
//     spdlog::set_default_logger(std::make_shared<spdlog::logger>("app", sink));
//     ...
//     spdlog::shutdown(); // before main returns
//
// Do not put it behind an async logger: a line in that one's queue does not survive a kill.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <inkstone_text.h>
#include <mutex>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <string>

template <typename Mutex> class inkstone_sink final : public spdlog::sinks::base_sink<Mutex> {
  public:
    explicit inkstone_sink(const std::string &path, const std::string &options = "survive=kill") {
        char *error;
        log_ = inkstone_text_open(path.c_str(), options.c_str(), &error);
        if (log_ == nullptr) fail(error);
    }
    // It closes the log, and says on stderr if that fails.
    ~inkstone_sink() override { inkstone_text_log_free(log_); }
    inkstone_sink(const inkstone_sink &) = delete;
    inkstone_sink &operator=(const inkstone_sink &) = delete;

    // Lines for which there was no room in time: the option drop_after_us.
    std::uint64_t dropped() const { return dropped_; }
    void reopen() { inkstone_text_reopen(log_); }

  protected:
    void sink_it_(const spdlog::details::log_msg &message) override {
        spdlog::memory_buf_t line;
        this->formatter_->format(message, line);
        const auto code = inkstone_text_write(log_, line.data(), line.size());
        if (code == INKSTONE_TEXT_DROPPED) ++dropped_;
        if (code < 0) throw spdlog::spdlog_ex("inkstone_text_write: " + std::to_string(code));
    }
    // Lines need no flush to survive a kill: this one waits until they are in the file.
    void flush_() override {
        char *error;
        if (inkstone_text_flush(log_, 10000, &error) < 0) fail(error);
    }

  private:
    [[noreturn]] static void fail(char *error) {
        const std::string why = error == nullptr ? "out of memory" : error;
        std::free(error);
        throw spdlog::spdlog_ex(why);
    }
    inkstone_text_log *log_ = nullptr;
    std::atomic<std::uint64_t> dropped_{0};
};

using inkstone_sink_mt = inkstone_sink<std::mutex>;
using inkstone_sink_st = inkstone_sink<spdlog::details::null_mutex>;

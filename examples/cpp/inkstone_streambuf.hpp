// A std::streambuf whose lines survive SIGKILL. Copy it: it needs inkstone_text.h alone.
//
//     inkstone_text_log *log = inkstone_text_open("app.log", "survive=kill", &error);
//     inkstone_streambuf lines(log);  // one for each thread
//     std::ostream out(&lines);
//     out << "request " << 7 << '\n'; // accepted: a copy, without a system call
//
// A line is put when it ends. std::flush and std::endl also put a line that has not ended, and wait
// for nothing: see inkstone_text_flush.
#pragma once
#include <cstdint>
#include <inkstone_text.h>
#include <streambuf>
#include <string>
#include <string_view>

class inkstone_streambuf final : public std::streambuf {
  public:
    explicit inkstone_streambuf(const inkstone_text_log *log) : log_(log) {}
    ~inkstone_streambuf() override { put(); }
    inkstone_streambuf(const inkstone_streambuf &) = delete;
    inkstone_streambuf &operator=(const inkstone_streambuf &) = delete;

    // Lines for which there was no room in time: the option drop_after_us.
    std::uint64_t dropped() const { return dropped_; }

  protected:
    int_type overflow(int_type sign) override {
        if (traits_type::eq_int_type(sign, traits_type::eof())) return traits_type::not_eof(sign);
        line_ += traits_type::to_char_type(sign);
        return line_.back() != '\n' || put() ? sign : traits_type::eof();
    }
    std::streamsize xsputn(const char *text, std::streamsize count) override {
        const std::string_view all(text, static_cast<std::size_t>(count));
        std::size_t begin = 0;
        for (auto end = all.find('\n'); end != all.npos; end = all.find('\n', begin)) {
            line_ += all.substr(begin, end + 1 - begin);
            if (!put()) return static_cast<std::streamsize>(begin);
            begin = end + 1;
        }
        line_ += all.substr(begin);
        return count;
    }
    int sync() override { return put() ? 0 : -1; }

  private:
    // Puts what is there of a line; false is an error, which the stream has as its badbit.
    bool put() {
        if (line_.empty()) return true;
        const auto code = inkstone_text_write(log_, line_.data(), line_.size());
        line_.clear();
        if (code == INKSTONE_TEXT_DROPPED) ++dropped_;
        return code >= 0;
    }
    const inkstone_text_log *log_;
    std::string line_{};
    std::uint64_t dropped_ = 0;
};

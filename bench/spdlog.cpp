// The text log's sink beside spdlog's own file sinks: spdlog KIND THREADS LINES RATE FILE.
//
//     c++ -std=c++17 -O2 -Iexamples/cpp -o spdlog bench/spdlog.cpp
//         $(pkg-config --cflags --libs inkstone-text spdlog)
//
// KIND is async (spdlog's async file sink that waits for room), or what lines of ours survive:
// nothing, kill. RATE is lines a second of each thread, 0 as fast as it can. The rate that it
// prints ends when all lines are in the file; the times are those of single calls.
#include "inkstone_sink.hpp"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <spdlog/async.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

int main(int count, char **arguments) {
    if (count != 6) return 2;
    const std::string kind = arguments[1], path = arguments[5];
    const std::size_t threads = std::stoul(arguments[2]), lines = std::stoul(arguments[3]);
    const double rate = std::stod(arguments[4]);
    std::remove(path.c_str());
    std::shared_ptr<spdlog::logger> log;
    if (kind == "async") {
        spdlog::init_thread_pool(8192, 1);
        log = spdlog::basic_logger_mt<spdlog::async_factory>("lines", path, true);
    } else {
        auto sink = std::make_shared<inkstone_sink_mt>(path, "survive=" + kind);
        log = std::make_shared<spdlog::logger>("lines", sink);
    }
    spdlog::set_default_logger(log);

    std::vector<std::vector<long>> times(threads);
    std::vector<std::thread> running;
    const auto begin = Clock::now();
    for (std::size_t number = 0; number < threads; number++)
        running.emplace_back([&, number] {
            auto &mine = times[number];
            mine.reserve(lines);
            const auto start = Clock::now();
            for (std::size_t line = 0; line < lines; line++) {
                const std::chrono::duration<double> due(rate > 0 ? double(line) / rate : 0);
                while (Clock::now() - start < due) {}
                const auto before = Clock::now();
                log->info("request {} of thread {} served in {} us", line, number, line % 977);
                mine.push_back((Clock::now() - before).count());
            }
        });
    for (auto &thread : running) thread.join();
    log->flush();
    log.reset();
    spdlog::shutdown();
    const std::chrono::duration<double> all = Clock::now() - begin;

    std::vector<long> sorted;
    for (const auto &mine : times) sorted.insert(sorted.end(), mine.begin(), mine.end());
    std::sort(sorted.begin(), sorted.end());
    const auto part = [&](double share) {
        return sorted[std::size_t(share * double(sorted.size() - 1))];
    };
    std::printf("%s: %.0f lines/s; p50 %ld, p99 %ld, p99.9 %ld ns\n", kind.c_str(),
                double(sorted.size()) / all.count(), part(0.5), part(0.99), part(0.999));
}

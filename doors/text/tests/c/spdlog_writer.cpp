// As writer.c, through spdlog: spdlog_writer LOG COUNTS THREADS OPTIONS.
#include "../../../../examples/cpp/inkstone_sink.hpp"
#include "counts.h"

#include <spdlog/spdlog.h>
#include <thread>
#include <vector>

int main(int words, char **arguments) {
    if (words != 5) return 2;
    auto *const counts = static_cast<struct count *>(counts_in(arguments[2]));
    auto sink = std::make_shared<inkstone_sink_mt>(arguments[1], arguments[4]);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("lines", sink));
    spdlog::set_pattern("%v");
    spdlog::default_logger()->set_error_handler([](const std::string &) { std::abort(); });
    std::vector<std::thread> threads;
    for (std::size_t number = 0; number < std::stoul(arguments[3]); number++)
        threads.emplace_back([number, mine = &counts[number]] {
            for (;;) {
                const auto now = mine->begun + 1;
                mine->begun = now;
                spdlog::info("{} {} and so on", number, now);
                mine->accepted = now;
            }
        });
    for (auto &thread : threads) thread.join();
    spdlog::shutdown();
}

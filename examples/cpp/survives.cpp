// Logs COUNT lines as fast as it can and kills itself: ./survives FILE COUNT. The next start finds
// all of them.
#include "inkstone_streambuf.hpp"
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

int main(int count, char **arguments) {
    if (count != 3) return std::cerr << "usage: survives FILE COUNT\n", 2;
    char *error;
    inkstone_text_log *log = inkstone_text_open(arguments[1], "survive=kill", &error);
    if (log == nullptr) {
        std::cerr << error << '\n';
        std::free(error);
        return 1;
    }
    {
        inkstone_streambuf lines(log);
        std::ostream out(&lines);
        const long last = std::stol(arguments[2]);
        for (long number = 1; number <= last; number++)
            out << "line " << number << " of " << last << '\n';
        if (!out) return std::cerr << "a line was not accepted\n", 1;
    }
    if (std::stol(arguments[2]) > 0) std::raise(SIGKILL);
    if (inkstone_text_close(log, &error) < 0) std::cerr << error << '\n', std::free(error);
    inkstone_text_log_free(log);
}

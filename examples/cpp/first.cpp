// Appends in several ways, reads back, and shows both ways to see an error: ./first DIRECTORY
#include <inkstone.hpp>
#include <iostream>
#include <string>
#include <vector>

int main(int count, char **arguments) {
    const std::string path = count > 1 ? arguments[1] : "orders";
    try {
        inkstone::log log(path, inkstone::options().segment_bytes(32 << 20));
        std::cout << log.recovery_json() << '\n';

        log.append_durable("durable when it returns");
        auto first = log.append("appended now,");
        auto second = log.append_parts({"waited ", "for ", "later"});
        first.wait();
        second.wait(); // Both share a flush.
        log.append_batch({"all of these", "or none"}).wait();
        log.append("called back").on_durable([](std::uint64_t lsn, const inkstone_error *error) {
            if (error == nullptr) std::cout << "LSN " << lsn << " is durable\n";
        });
        log.sync();

        auto cursor = log.reader().from(log.first());
        while (auto record = cursor.next())
            std::cout << record->lsn() << ": " << record->text() << '\n';
        log.close();
    } catch (const inkstone::error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }

    // The same without exceptions.
    auto opened = inkstone::log::open(path, std::nothrow);
    if (!opened) {
        std::cerr << opened.error().what() << '\n';
        return 1;
    }
    auto refused = opened->truncate_before(1000000, std::nothrow);
    if (!refused)
        std::cout << inkstone_code_name(refused.code()) << ": " << refused.error().what() << '\n';
    return refused.code() == INKSTONE_NOT_YET ? 0 : 1;
}

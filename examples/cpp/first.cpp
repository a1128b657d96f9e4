// Appends in several ways, reads back, and shows both ways to see an error: ./first DIRECTORY
#include <inkstone.hpp>
#include <iostream>
#include <string>

int main(int count, char **arguments) {
    const std::string path = count > 1 ? arguments[1] : "orders";
    try {
        auto options = inkstone::options().set("segment_bytes", 32 << 20);
        auto log = inkstone::log::open(path, options).value();

        log.append_durable("durable when it returns").value();
        auto first = log.append("appended now,").value();
        auto second = log.append_parts({"waited ", "for ", "later"}).value();
        first.wait().value();
        second.wait().value(); // Both share a flush.
        log.append_batch({"all of these", "or none"})->wait().value();
        auto called = log.append("called back").value();
        called
            .on_durable([](std::uint64_t lsn, const inkstone_error *error) {
                if (error == nullptr) std::cout << "LSN " << lsn << " is durable\n";
            })
            .value();
        log.sync().value();

        auto cursor = log.reader()->from(log.first()).value();
        while (auto record = cursor.next().value())
            std::cout << record->lsn() << ": " << record->text() << '\n';
        log.close().value();
    } catch (const inkstone::error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }

    // The same without exceptions.
    auto opened = inkstone::log::open(path);
    if (!opened) {
        std::cerr << opened.error().what() << '\n';
        return 1;
    }
    auto refused = opened->truncate_before(1000000);
    if (!refused)
        std::cout << inkstone_code_name(refused.code()) << ": " << refused.error().what() << '\n';
    return refused.code() == INKSTONE_NOT_YET ? 0 : 1;
}

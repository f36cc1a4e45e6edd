// A component that says nothing but its hello, and leaves what it prints in a buffer of C++'s own.
#include <cstdint>
#include <iostream>

namespace {
char hello[] =
    R"({"now": 0, "events": [{"timestamp": 0, "event_type": "EDCHelloEvent", "event": {"batprotocol_version": "1.0.0",
        "decision_component_name": "streams", "decision_component_version": "1", "decision_component_commit": "",
        "requested_simulation_features": {}}}]})";
char nothing[] = R"({"now": 1, "events": []})";

uint8_t answer(char *text, uint32_t size, uint8_t **reply, uint32_t *reply_size) {
    *reply = reinterpret_cast<uint8_t *>(text);
    *reply_size = size;
    return 0;
}
}  // namespace

extern "C" uint8_t batsim_edc_init(const uint8_t *, uint32_t, uint32_t *flags, uint8_t **reply, uint32_t *size) {
    std::ios::sync_with_stdio(false);
    std::cout << "init\n";
    *flags = 2;
    return answer(hello, sizeof hello, reply, size);
}

extern "C" uint8_t batsim_edc_take_decisions(const uint8_t *, uint32_t, uint8_t **reply, uint32_t *size) {
    std::cout << "call\n";
    return answer(nothing, sizeof nothing, reply, size);
}

extern "C" uint8_t batsim_edc_deinit() {
    std::cout << "deinit\n";
    return 0;
}

// The entry of a component as those of Batsim 5's own tests have it: it throws where its init string is not what it wants.
// fcfs.c is linked with it, its own entry renamed to inner_init.
#include <cstdint>
#include <stdexcept>
#include <string>

extern "C" uint8_t inner_init(const uint8_t *data, uint32_t size, uint32_t *flags, uint8_t **reply, uint32_t *reply_size);

extern "C" uint8_t batsim_edc_init(const uint8_t *data, uint32_t size, uint32_t *flags, uint8_t **reply, uint32_t *reply_size)
{
    std::string text(reinterpret_cast<const char *>(data), size);
    if (text.empty() || text.front() != '{' || text.find(WANTED) == std::string::npos)
        throw std::runtime_error("scheduler called with bad init string");
    return inner_init(reinterpret_cast<const uint8_t *>("json"), 4, flags, reply, reply_size);
}

/* A worker whose first act is to write the wall clock (nanoseconds) to the file named by its argument. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct timespec now;
    char line[32];
    clock_gettime(CLOCK_REALTIME, &now);
    if (argc < 2) return 2;
    int file = open(argv[1], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) return 1;
    int size = snprintf(line, sizeof line, "%lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    return write(file, line, (size_t)size) == size ? 0 : 1;
}

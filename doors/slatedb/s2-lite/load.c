// Appends records to s2-lite over connections that stay open, and costs little: one thread, one
// write and one read for each append. Prints appends a second, times, and the processor time of the
// server and of itself for each append.
//
//     cc -O2 -o load load.c
//     ./load PORT PID-OF-THE-SERVER CLIENTS SECONDS [METHOD PATH]
//
// With METHOD and PATH it sends that request without a body instead, such as GET /health.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 1024, TIMES_MAX = 1 << 24 };

struct client {
    int socket;
    size_t got;
    double began;
    char answer[8192];
};

static struct client clients[CLIENTS_MAX];
static float times[TIMES_MAX];
static char request[1024];
static size_t request_bytes;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

// User and system time of the server so far.
static double server_seconds(const char *pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) fail(path);
    fclose(file);
    unsigned long user, system;
    const char *form = " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu";
    char *after = strrchr(line, ')');
    if (!after || sscanf(after + 1, form, &user, &system) != 2) fail(path);
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

static double own_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void ask(struct client *client) {
    client->got = 0;
    client->began = seconds();
    if (write(client->socket, request, request_bytes) != (ssize_t)request_bytes) fail("write");
}

// Whether the whole answer is there.
static int is_answered(struct client *client) {
    size_t room = sizeof client->answer - 1 - client->got;
    ssize_t more = read(client->socket, client->answer + client->got, room);
    if (more <= 0) fail("read");
    client->got += more;
    client->answer[client->got] = 0;
    char *end = strstr(client->answer, "\r\n\r\n");
    if (!end) return 0;
    char *length = strcasestr(client->answer, "\r\ncontent-length:");
    size_t body = length && length < end ? strtoul(length + 17, 0, 10) : 0;
    if (client->got < (size_t)(end + 4 - client->answer) + body) return 0;
    if (strncmp(client->answer, "HTTP/1.1 200", 12)) {
        fprintf(stderr, "%s\n", client->answer);
        exit(1);
    }
    return 1;
}

static int by_size(const void *a, const void *b) {
    return (*(float *)a > *(float *)b) - (*(float *)a < *(float *)b);
}

int main(int count, char **words) {
    if (count != 5 && count != 7) return fprintf(stderr, "see the head of load.c\n"), 2;
    int wanted = atoi(words[3]), one = 1, epoll = epoll_create1(0);
    if (wanted < 1 || wanted > CLIENTS_MAX) return fprintf(stderr, "CLIENTS: 1 to 1024\n"), 2;
    if (count == 7) {
        request_bytes = snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nhost: x\r\n\r\n",
                                 words[5], words[6]);
    } else {
        char body[256];
        int bytes = snprintf(body, sizeof body, "{\"records\":[{\"body\":\"%0128d\"}]}", 7);
        request_bytes = snprintf(request, sizeof request,
                                 "POST /v1/streams/records/records HTTP/1.1\r\nhost: x\r\n"
                                 "s2-basin: inkstone-measures\r\ncontent-type: application/json\r\n"
                                 "content-length: %d\r\n\r\n%s",
                                 bytes, body);
    }
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < wanted; i++) {
        struct client *client = &clients[i];
        client->socket = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(client->socket, (struct sockaddr *)&to, sizeof to)) fail("connect");
        setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, client->socket, &event)) fail("epoll_ctl");
        ask(client);
    }
    // The first tenth of the time is not counted.
    double length = atof(words[4]), began = seconds(), from = began + length / 10;
    double server = 0, own = 0;
    size_t done = 0;
    for (double now = began; now < began + length && done < TIMES_MAX;) {
        struct epoll_event events[64];
        int ready = epoll_wait(epoll, events, 64, 1000);
        now = seconds();
        if (!server && now >= from) {
            server = server_seconds(words[2]), own = own_seconds(), from = now;
        }
        for (int i = 0; i < ready; i++) {
            struct client *client = events[i].data.ptr;
            if (!is_answered(client)) continue;
            if (server && done < TIMES_MAX) times[done++] = seconds() - client->began;
            ask(client);
        }
    }
    if (!done) return fprintf(stderr, "no answer in %s s\n", words[4]), 1;
    double took = seconds() - from;
    server = server_seconds(words[2]) - server, own = own_seconds() - own;
    qsort(times, done, sizeof *times, by_size);
    printf("%.0f a second, p50 %.3f ms, p99 %.3f ms; processor time each: server %.1f us, client "
           "%.1f us; busy: server %.2f, client %.2f processors\n",
           done / took, times[done / 2] * 1e3, times[done * 99 / 100] * 1e3, server / done * 1e6,
           own / done * 1e6, server / took, own / took);
}

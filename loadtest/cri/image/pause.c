/* The process that holds a pod's namespaces: it reaps orphans and ends when it is asked to. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) {
    (void)signal;
    _exit(0);
}

static void reap(int signal) {
    (void)signal;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGINT, &action, 0);
    sigaction(SIGTERM, &action, 0);
    action.sa_handler = reap;
    action.sa_flags = SA_NOCLDSTOP;
    sigaction(SIGCHLD, &action, 0);
    for (;;) {
        pause();
    }
}

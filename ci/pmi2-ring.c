/* A program of others for ci/launch-tests.sh: ranks that find each other by PMI-2, through Slurm's library. */
#include <slurm/pmi2.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    int spawned, size, rank, appnum, len = 0, sum, found;
    char job[256], key[64], value[1024];

    if (PMI2_Init(&spawned, &size, &rank, &appnum) || PMI2_Job_GetId(job, sizeof job))
        return 1;
    snprintf(key, sizeof key, "number-%d", rank);
    snprintf(value, sizeof value, "%d", rank);
    if (PMI2_KVS_Put(key, value) || PMI2_KVS_Fence())
        return 2;
    for (sum = 0, found = 0; found < size; found++) {
        snprintf(key, sizeof key, "number-%d", found);
        if (PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &len))
            return 3;
        sum += atoi(value);
    }
    if (PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found) || !found)
        return 4;
    if (rank == 0)
        printf("ring of %d: sum %d\n", size, sum);
    return PMI2_Finalize() ? 5 : 0;
}

// Does one thing to a cluster: `java -cp LIBS Admin.java BROKERS THING ARGUMENTS...`, where the thing is
//   allow   (PRINCIPAL OPERATION RESOURCE NAME)...   grants rights, and returns when a broker has them; a name that
//                                                    ends with * is a prefix
//   set     TOPIC (NAME VALUE)...                    changes settings of a topic
//   delete  TOPIC...                                 deletes topics, and returns when none is there

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

public final class Admin {
    // How long a broker may take to learn of what the controller has done: it takes milliseconds.
    private static final Duration LEARNS_WITHIN = Duration.ofSeconds(60);

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0]);
        List<String> rest = List.of(args).subList(2, args.length);
        try (var admin = org.apache.kafka.clients.admin.Admin.create(settings)) {
            switch (args[1]) {
                case "allow" -> {
                    List<AclBinding> rights = rights(rest);
                    admin.createAcls(rights).all().get();
                    // A broker denies what it has not learned of, and learns of it a moment after Kafka says so.
                    await("rights", () ->
                        admin.describeAcls(AclBindingFilter.ANY).values().get().containsAll(rights));
                }
                case "set" -> admin.incrementalAlterConfigs(changes(rest)).all().get();
                case "delete" -> {
                    admin.deleteTopics(rest).all().get();
                    // What is deleted is gone a moment after Kafka says so.
                    await("deletion", () ->
                        admin.listTopics().names().get().stream().noneMatch(rest::contains));
                }
                default -> throw new IllegalArgumentException(args[1]);
            }
        }
    }

    private static void await(String what, Callable<Boolean> isDone) throws Exception {
        long start = System.nanoTime();
        while (!isDone.call()) {
            if (System.nanoTime() - start > LEARNS_WITHIN.toNanos()) {
                throw new TimeoutException("the broker does not show the " + what + " within " + LEARNS_WITHIN);
            }
            Thread.sleep(20);
        }
    }

    private static List<AclBinding> rights(List<String> args) {
        List<AclBinding> rights = new ArrayList<>();
        for (int i = 0; i + 3 < args.size(); i += 4) {
            String name = args.get(i + 3);
            boolean prefix = name.endsWith("*");
            ResourcePattern pattern = new ResourcePattern(
                ResourceType.valueOf(args.get(i + 2)),
                prefix ? name.substring(0, name.length() - 1) : name,
                prefix ? PatternType.PREFIXED : PatternType.LITERAL);
            AccessControlEntry entry = new AccessControlEntry(
                args.get(i), "*", AclOperation.valueOf(args.get(i + 1)), AclPermissionType.ALLOW);
            rights.add(new AclBinding(pattern, entry));
        }
        return rights;
    }

    private static Map<ConfigResource, Collection<AlterConfigOp>> changes(List<String> args) {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (int i = 1; i + 1 < args.size(); i += 2) {
            ConfigEntry entry = new ConfigEntry(args.get(i), args.get(i + 1));
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
        }
        return Map.of(new ConfigResource(ConfigResource.Type.TOPIC, args.get(0)), changes);
    }
}
